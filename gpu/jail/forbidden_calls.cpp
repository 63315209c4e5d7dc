#include "gpu/jail/forbidden_calls.hpp"

#include <seccomp.h>
#include <signal.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>

namespace troupe::gpu {
namespace {

// By number, and kept for ever: a signal handler can neither ask the library nor allocate.
constexpr std::size_t kCalls = 512;
std::array<std::string, kCalls>* names = nullptr;
TellForbiddenCall teller = nullptr;

void OnForbiddenCall(int number, siginfo_t* info, void*) {
  const auto call = static_cast<std::size_t>(info->si_syscall);
  teller(call < kCalls ? std::string_view((*names)[call]) : "of an unknown number");
  (void)raise(number);  // the handler is gone by now (SA_RESETHAND): the process ends
}

}  // namespace

void TellOfForbiddenCalls(TellForbiddenCall tell) {
  auto& known = *new std::array<std::string, kCalls>();
  for (std::size_t call = 0; call < kCalls; ++call) {
    char* const name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, static_cast<int>(call));
    known[call] = name == nullptr ? "number " + std::to_string(call) : std::string(name);
    free(name);
  }
  names = &known;
  teller = tell;
  struct sigaction action {};
  action.sa_sigaction = OnForbiddenCall;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESETHAND | SA_ONSTACK);
  (void)sigemptyset(&action.sa_mask);
  (void)sigaction(SIGSYS, &action, nullptr);
}

}  // namespace troupe::gpu

#include "gpu/worker/last_words.hpp"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdint>

namespace troupe::gpu {
namespace {

ControlPage* crash_page = nullptr;

struct FatalSignal {
  int number;
  const char* name;
};
constexpr FatalSignal kFatal[] = {
    {SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGFPE, "SIGFPE"}, {SIGILL, "SIGILL"}, {SIGABRT, "SIGABRT"}};

// Text without the library: what runs in a signal handler calls nothing that may lock or allocate.
class SafeText {
 public:
  SafeText& Add(std::string_view text) {
    for (const char c : text) {
      if (length_ < buffer_.size()) buffer_[length_++] = c;
    }
    return *this;
  }
  SafeText& Number(std::uint64_t value, unsigned base) {
    std::array<char, 24> digits{};
    std::size_t at = digits.size() - 1;
    do {
      digits[--at] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value > 0);
    return Add(digits.data() + at);
  }
  [[nodiscard]] std::string_view text() const { return {buffer_.data(), length_}; }

 private:
  std::array<char, 256> buffer_{};
  std::size_t length_ = 0;
};

void OnFatalSignal(int number, siginfo_t* info, void*) {
  const char* name = "a signal";
  for (const FatalSignal& fatal : kFatal) {
    if (fatal.number == number) name = fatal.name;
  }
  SafeText text;
  text.Add("crashed by ").Add(name);
  if (number != SIGABRT)
    text.Add(" at address 0x").Number(reinterpret_cast<std::uintptr_t>(info->si_addr), 16);
  const auto& compute = crash_page->lanes[static_cast<std::size_t>(Lane::kCompute)];
  text.Add(", last computed order ").Number(compute.order.load(std::memory_order_relaxed), 10);
  WriteLastWords(*crash_page, text.text());
  (void)raise(number);  // the handler is gone by now (SA_RESETHAND): the process ends as it would have
}

}  // namespace

void WriteForbiddenCall(std::string_view name) {
  SafeText words;
  words.Add("ended by its jail: it made the system call ").Add(name).Add(", which a worker has no use for");
  if (crash_page != nullptr) WriteLastWords(*crash_page, words.text());
  const SafeText line = SafeText().Add("troupe-gpu-worker: ").Add(words.text()).Add("\n");
  (void)!write(STDERR_FILENO, line.text().data(), line.text().size());
}

void WriteLastWordsOnCrash(ControlPage& page) {
  crash_page = &page;
  static std::array<std::byte, 64 << 10> stack;  // for the main thread: its own may have overflowed
  stack_t alternative{};
  alternative.ss_sp = stack.data();
  alternative.ss_size = stack.size();
  (void)sigaltstack(&alternative, nullptr);
  for (const FatalSignal& fatal : kFatal) {
    struct sigaction action {};
    action.sa_sigaction = OnFatalSignal;
    action.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESETHAND | SA_ONSTACK);
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(fatal.number, &action, nullptr);
  }
}

}  // namespace troupe::gpu

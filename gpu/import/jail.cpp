#include "gpu/import/jail.hpp"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {
namespace {

// A sanitizer's shadow memory is most of the address space, and its leak check at exit starts a process.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

absl::Status Failed(const std::string& what) {
  return absl::InternalError(absl::StrCat("cannot ", what, ": ", std::strerror(errno)));
}

// `grace`: how far the hard limit lies beyond.
absl::Status Limit(__rlimit_resource resource, std::uint64_t value, const std::string& what,
                   std::uint64_t grace = 0) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return Failed(absl::StrCat("read the limit of ", what));
  limit.rlim_max = std::min<rlim_t>(limit.rlim_max, value + grace);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, value);
  if (setrlimit(resource, &limit) != 0) return Failed(absl::StrCat("limit ", what));
  return absl::OkStatus();
}

// What an importer never needs and an intruder would: other programs, other machines, other processes'
// memory. Refused with EPERM, so that a library that probes finds a door closed instead of dying.
constexpr std::uint32_t kForbidden[] = {
    SYS_execve,           SYS_execveat,          SYS_fork, SYS_vfork,  SYS_socket,
    SYS_socketpair,       SYS_connect,           SYS_bind, SYS_listen, SYS_ptrace,
    SYS_process_vm_readv, SYS_process_vm_writev, SYS_kill, SYS_mount};
constexpr std::uint32_t kX32 = 0x40000000;  // system calls of the x32 ABI, which would walk past the list

std::vector<sock_filter> Filter() {
  const sock_filter load_number = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
  const sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      load_number,
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32, 0, 1),
      refuse,
      // The flags of clone3 lie in memory, out of a filter's sight: the C library falls back to clone, whose
      // are seen.
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0),
      refuse,
      allow,
  };
  for (std::uint32_t number : kForbidden) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    program.push_back(refuse);
  }
  program.push_back(allow);
  return program;
}

[[maybe_unused]] absl::Status ForbidSystemCalls() {
  std::vector<sock_filter> program = Filter();
  sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0) return absl::OkStatus();
  // A container may forbid filters; the limits above hold all the same.
  return errno == EINVAL || errno == EPERM || errno == EACCES ? absl::OkStatus()
                                                              : Failed("filter system calls");
}

}  // namespace

absl::Status EnterJail(const JailLimits& limits) {
  const auto seconds =
      std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(limits.time).count());
  TROUPE_RETURN_IF_ERROR(Limit(RLIMIT_CORE, 0, "core dumps"));
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // their shadow is most of the address space
  TROUPE_RETURN_IF_ERROR(Limit(RLIMIT_AS, limits.memory.count(), "memory"));
#endif
  TROUPE_RETURN_IF_ERROR(Limit(RLIMIT_CPU, static_cast<std::uint64_t>(seconds), "processor time", 1));
  TROUPE_RETURN_IF_ERROR(Limit(RLIMIT_FSIZE, limits.file_size.count(), "file size"));
  TROUPE_RETURN_IF_ERROR(Limit(RLIMIT_NOFILE, static_cast<std::uint64_t>(limits.open_files), "open files"));
  if (prctl(PR_SET_DUMPABLE, 0) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return Failed("give up privileges");
#ifdef __x86_64__
  if (!kSanitized) TROUPE_RETURN_IF_ERROR(ForbidSystemCalls());
#endif
  return absl::OkStatus();
}

}  // namespace troupe::gpu

#include "gpu/jail/filter.hpp"

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

#include "absl/strings/str_cat.h"

namespace troupe::gpu {
namespace {

// Compute, and use what is open.
constexpr int kCompute[] = {SCMP_SYS(read),
                            SCMP_SYS(readv),
                            SCMP_SYS(pread64),
                            SCMP_SYS(write),
                            SCMP_SYS(writev),
                            SCMP_SYS(pwrite64),
                            SCMP_SYS(lseek),
                            SCMP_SYS(close),
                            SCMP_SYS(mmap),
                            SCMP_SYS(munmap),
                            SCMP_SYS(mremap),
                            SCMP_SYS(mprotect),
                            SCMP_SYS(madvise),
                            SCMP_SYS(brk),
                            SCMP_SYS(futex),
                            SCMP_SYS(exit),
                            SCMP_SYS(exit_group),
                            SCMP_SYS(rt_sigprocmask),
                            SCMP_SYS(rt_sigreturn),
                            SCMP_SYS(sigaltstack),
                            SCMP_SYS(getpid),
                            SCMP_SYS(gettid),
                            SCMP_SYS(clock_gettime),
                            SCMP_SYS(gettimeofday),
                            SCMP_SYS(clock_getres),
                            SCMP_SYS(getrandom),
                            SCMP_SYS(sched_yield),
                            SCMP_SYS(sysinfo),
                            SCMP_SYS(getrusage),
                            SCMP_SYS(restart_syscall),
                            SCMP_SYS(getcpu),
                            SCMP_SYS(sched_getaffinity),
                            SCMP_SYS(clock_nanosleep),
                            SCMP_SYS(nanosleep),
                            SCMP_SYS(rseq),
                            SCMP_SYS(set_robust_list)};

// Threads, shared memory, and the sockets and descriptors by which a daemon and its workers speak. Paths are
// for Landlock to judge; sockets are of the Unix family, below.
constexpr int kServe[] = {SCMP_SYS(openat),
                          SCMP_SYS(newfstatat),
                          SCMP_SYS(fstat),
                          SCMP_SYS(stat),
                          SCMP_SYS(lstat),
                          SCMP_SYS(statx),
                          SCMP_SYS(readlink),
                          SCMP_SYS(readlinkat),
                          SCMP_SYS(access),
                          SCMP_SYS(faccessat),
                          SCMP_SYS(faccessat2),
                          SCMP_SYS(getdents64),
                          SCMP_SYS(unlink),
                          SCMP_SYS(unlinkat),
                          SCMP_SYS(memfd_create),
                          SCMP_SYS(ftruncate),
                          SCMP_SYS(fallocate),
                          SCMP_SYS(fchmod),
                          SCMP_SYS(preadv2),
                          SCMP_SYS(dup),
                          SCMP_SYS(dup2),
                          SCMP_SYS(dup3),
                          SCMP_SYS(pipe),
                          SCMP_SYS(pipe2),
                          SCMP_SYS(eventfd2),
                          SCMP_SYS(signalfd4),
                          SCMP_SYS(epoll_create1),
                          SCMP_SYS(epoll_ctl),
                          SCMP_SYS(epoll_wait),
                          SCMP_SYS(epoll_pwait),
                          SCMP_SYS(epoll_pwait2),
                          SCMP_SYS(poll),
                          SCMP_SYS(ppoll),
                          SCMP_SYS(select),
                          SCMP_SYS(pselect6),
                          SCMP_SYS(bind),
                          SCMP_SYS(listen),
                          SCMP_SYS(accept),
                          SCMP_SYS(accept4),
                          SCMP_SYS(connect),
                          SCMP_SYS(sendmsg),
                          SCMP_SYS(recvmsg),
                          SCMP_SYS(sendto),
                          SCMP_SYS(recvfrom),
                          SCMP_SYS(shutdown),
                          SCMP_SYS(getsockopt),
                          SCMP_SYS(setsockopt),
                          SCMP_SYS(getsockname),
                          SCMP_SYS(getpeername),
                          SCMP_SYS(pidfd_open),
                          SCMP_SYS(getuid),
                          SCMP_SYS(geteuid),
                          SCMP_SYS(getgid),
                          SCMP_SYS(getegid),
                          SCMP_SYS(chmod),
                          SCMP_SYS(fchmodat),
                          SCMP_SYS(mlock),
                          SCMP_SYS(mlock2),
                          SCMP_SYS(munlock),
                          SCMP_SYS(mincore),
                          SCMP_SYS(membarrier),
                          SCMP_SYS(futex_waitv),
                          SCMP_SYS(uname),
                          SCMP_SYS(umask),
                          SCMP_SYS(sched_getscheduler),
                          SCMP_SYS(sched_getparam),
                          SCMP_SYS(sched_get_priority_max),
                          SCMP_SYS(sched_get_priority_min),
                          SCMP_SYS(getpriority),
                          SCMP_SYS(wait4),
                          SCMP_SYS(waitid),
                          SCMP_SYS(getppid),
                          SCMP_SYS(timerfd_create),
                          SCMP_SYS(timerfd_settime),
                          SCMP_SYS(rt_sigtimedwait),
                          SCMP_SYS(rt_sigpending),
                          SCMP_SYS(msync),
                          SCMP_SYS(set_tid_address),
                          SCMP_SYS(get_robust_list),
                          SCMP_SYS(flock),
                          SCMP_SYS(getcwd)};

// What neither a worker nor a GPU driver whose device is open has a use for, and an intruder would.
constexpr int kForbidden[] = {SCMP_SYS(execve),
                              SCMP_SYS(execveat),
                              SCMP_SYS(fork),
                              SCMP_SYS(vfork),
                              SCMP_SYS(ptrace),
                              SCMP_SYS(process_vm_readv),
                              SCMP_SYS(process_vm_writev),
                              SCMP_SYS(process_madvise),
                              SCMP_SYS(pidfd_getfd),
                              SCMP_SYS(kcmp),
                              SCMP_SYS(unshare),
                              SCMP_SYS(setns),
                              SCMP_SYS(mount),
                              SCMP_SYS(umount2),
                              SCMP_SYS(pivot_root),
                              SCMP_SYS(chroot),
                              SCMP_SYS(open_tree),
                              SCMP_SYS(move_mount),
                              SCMP_SYS(fsopen),
                              SCMP_SYS(fsmount),
                              SCMP_SYS(fsconfig),
                              SCMP_SYS(fspick),
                              SCMP_SYS(mount_setattr),
                              SCMP_SYS(io_uring_setup),
                              SCMP_SYS(io_uring_enter),
                              SCMP_SYS(io_uring_register),
                              SCMP_SYS(userfaultfd),
                              SCMP_SYS(bpf),
                              SCMP_SYS(perf_event_open),
                              SCMP_SYS(keyctl),
                              SCMP_SYS(add_key),
                              SCMP_SYS(request_key),
                              SCMP_SYS(init_module),
                              SCMP_SYS(finit_module),
                              SCMP_SYS(delete_module),
                              SCMP_SYS(kexec_load),
                              SCMP_SYS(kexec_file_load),
                              SCMP_SYS(reboot),
                              SCMP_SYS(swapon),
                              SCMP_SYS(swapoff),
                              SCMP_SYS(open_by_handle_at),
                              SCMP_SYS(name_to_handle_at),
                              SCMP_SYS(personality),
                              SCMP_SYS(mknod),
                              SCMP_SYS(mknodat),
                              SCMP_SYS(setuid),
                              SCMP_SYS(setgid),
                              SCMP_SYS(setresuid),
                              SCMP_SYS(setresgid),
                              SCMP_SYS(capset),
                              SCMP_SYS(acct),
                              SCMP_SYS(iopl),
                              SCMP_SYS(ioperm),
                              SCMP_SYS(settimeofday),
                              SCMP_SYS(clock_settime),
                              SCMP_SYS(sethostname),
                              SCMP_SYS(syslog)};

class Rules {
 public:
  explicit Rules(std::uint32_t standard) : context_(seccomp_init(standard)) {
    if (context_ == nullptr) {
      Note(-ENOMEM);
      return;
    }
    Note(seccomp_attr_set(context_.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS));
    Note(seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_NNP, 1));
    Note(seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_TSYNC, 1));
  }
  template <class... Comparisons>
  Rules& Add(std::uint32_t action, int number, Comparisons... comparisons) {
    if (error_ == 0)
      Note(seccomp_rule_add(context_.get(), action, number, sizeof...(comparisons), comparisons...));
    return *this;
  }
  Rules& Each(std::uint32_t action, std::span<const int> numbers) {
    for (const int number : numbers) Add(action, number);
    return *this;
  }
  [[nodiscard]] absl::Status Load() {
    if (error_ == 0) Note(seccomp_load(context_.get()));
    if (error_ == 0) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("a filter of system calls (", std::strerror(-error_), ")"));
  }

 private:
  struct Release {
    void operator()(void* context) const { seccomp_release(context); }
  };
  void Note(int error) {
    if (error_ == 0) error_ = error;
  }
  std::unique_ptr<void, Release> context_;
  int error_ = 0;
};

constexpr std::uint32_t kAllow = SCMP_ACT_ALLOW;

// As asm/prctl.h has them; the header of the system may be older than its kernel.
constexpr int kGetTileSupport = 0x1021;
constexpr int kAskForTiles = 0x1023;

// A process may signal itself, which abort() does, ask for its own limits, and ask the kernel for the tile
// registers that oneDNN computes with.
void AllowSelf(Rules& rules) {
  const auto self = static_cast<scmp_datum_t>(getpid());
  rules.Add(kAllow, SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_EQ, self));
  rules.Add(kAllow, SCMP_SYS(prlimit64), SCMP_A0(SCMP_CMP_EQ, 0), SCMP_A2(SCMP_CMP_EQ, 0));
  for (int what = kGetTileSupport; what <= kAskForTiles; ++what)
    rules.Add(kAllow, SCMP_SYS(arch_prctl), SCMP_A0(SCMP_CMP_EQ, static_cast<scmp_datum_t>(what)));
}

absl::Status InstallImport() {
  Rules rules(SCMP_ACT_KILL_PROCESS);
  rules.Each(kAllow, kCompute).Add(kAllow, SCMP_SYS(rt_sigaction));
  AllowSelf(rules);
  // Libraries look for files of the system and for the kind of a stream, and do well without.
  constexpr int kProbed[] = {SCMP_SYS(openat),   SCMP_SYS(newfstatat), SCMP_SYS(fstat),
                             SCMP_SYS(readlink), SCMP_SYS(access),     SCMP_SYS(statx)};
  return rules.Each(SCMP_ACT_ERRNO(EACCES), kProbed).Add(SCMP_ACT_ERRNO(ENOTTY), SCMP_SYS(ioctl)).Load();
}

// What the arguments decide about. Whatever is not said here, and is on no list, does not exist (ENOSYS).
void AllowWithinWorker(Rules& rules) {
  constexpr scmp_datum_t kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                       CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
  AllowSelf(rules);
  const auto self = static_cast<scmp_datum_t>(getpid());
  rules.Add(kAllow, SCMP_SYS(kill), SCMP_A0(SCMP_CMP_EQ, self));
  // Nothing can take the place of what tells of a forbidden call (gpu/jail/forbidden_calls.hpp).
  rules.Add(kAllow, SCMP_SYS(rt_sigaction), SCMP_A0(SCMP_CMP_NE, SIGSYS));
  // Threads only: clone3's flags lie in memory, out of a filter's sight, and the C library falls back.
  rules.Add(kAllow, SCMP_SYS(clone),
            SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_VM | kNamespaces, CLONE_THREAD | CLONE_VM));
  rules.Add(SCMP_ACT_TRAP, SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
  rules.Add(kAllow, SCMP_SYS(socket), SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
  rules.Add(SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socket), SCMP_A0(SCMP_CMP_NE, AF_UNIX));
  rules.Add(kAllow, SCMP_SYS(socketpair), SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
  // A pidfd can be asked whether its process lives, and no more: signal 0, and pidfd_getfd is not here.
  rules.Add(kAllow, SCMP_SYS(pidfd_send_signal), SCMP_A1(SCMP_CMP_EQ, 0));
  // A thread may step back behind all others, and choose its own processors.
  rules.Add(kAllow, SCMP_SYS(sched_setscheduler), SCMP_A0(SCMP_CMP_EQ, 0), SCMP_A1(SCMP_CMP_EQ, SCHED_IDLE));
  rules.Add(kAllow, SCMP_SYS(sched_setaffinity), SCMP_A0(SCMP_CMP_EQ, 0));
  for (const int option : {PR_SET_NAME, PR_GET_NAME, PR_GET_DUMPABLE, PR_SET_TIMERSLACK, PR_SET_VMA})
    rules.Add(kAllow, SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_EQ, static_cast<scmp_datum_t>(option)));
  for (const unsigned long request : {FIONREAD, FIOCLEX})
    rules.Add(kAllow, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_EQ, request));
  // Whether a descriptor blocks is shared with the daemon that has it, too: a doorbell that blocks would hold
  // the daemon when it rings.
  rules.Add(kAllow, SCMP_SYS(fcntl), SCMP_A1_32(SCMP_CMP_NE, F_SETFL));
  rules.Add(kAllow, SCMP_SYS(fcntl), SCMP_A1_32(SCMP_CMP_EQ, F_SETFL),
            SCMP_A2(SCMP_CMP_MASKED_EQ, O_NONBLOCK, O_NONBLOCK));
  rules.Add(SCMP_ACT_ERRNO(ENOTTY), SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_EQ, TCGETS));
}

// Killing is for what only an intruder asks for. Libraries of other versions ask for calls that are on no
// list, and fall back when these do not exist, as they do on older kernels.
absl::Status InstallWorker() {
  Rules rules(SCMP_ACT_ERRNO(ENOSYS));
  rules.Each(kAllow, kCompute).Each(kAllow, kServe).Each(SCMP_ACT_TRAP, kForbidden);
  AllowWithinWorker(rules);
  return rules.Load();
}

absl::Status InstallDriver() {
  const std::uint32_t refuse = SCMP_ACT_ERRNO(EPERM);
  Rules rules(kAllow);
  rules.Each(refuse, kForbidden).Add(SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3));
  rules.Add(refuse, SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
  return rules.Load();
}

}  // namespace

absl::Status InstallFilter(FilterKind kind) {
  if (kind == FilterKind::kImport) return InstallImport();
  return kind == FilterKind::kWorker ? InstallWorker() : InstallDriver();
}

}  // namespace troupe::gpu

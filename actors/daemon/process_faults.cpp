#include "actors/daemon/process_faults.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/channel_cut.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::actors {

namespace {

constexpr Duration kLongest = std::chrono::minutes(10);
// Until the operator's answer is on its way.
constexpr Duration kAMoment = std::chrono::milliseconds(100);

absl::Status CheckLength(Duration length) {
  if (length > Duration::zero() && length <= kLongest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("this fault lasts for ", FormatDuration(length),
                                                 "; say a time up to ", FormatDuration(kLongest)));
}

void SleepFor(Duration time) {
  const auto count = time.count();
  timespec left{count / 1'000'000'000, count % 1'000'000'000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

// Only what is safe in a child of a process with threads: their locks are as they were. It holds nothing open
// of its parent's but `process`, whose number cannot come to mean another process.
[[noreturn]] void StopAndWake(int process, Duration length) {
  constexpr int kKept = 3;
  if (process != kKept) dup2(process, kKept);
  syscall(SYS_close_range, kKept + 1, ~0U, 0);
  SleepFor(kAMoment);
  syscall(SYS_pidfd_send_signal, kKept, SIGSTOP, nullptr, 0);
  SleepFor(length);
  syscall(SYS_pidfd_send_signal, kKept, SIGCONT, nullptr, 0);
  _exit(0);
}

// It forks twice, so that the process that wakes this one has no parent that must wait for it.
absl::Status StopFor(Duration length) {
  const int process = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  if (process < 0) return absl::ErrnoToStatus(errno, "opening a descriptor of this process");
  const pid_t child = fork();
  if (child == 0) {
    if (fork() != 0) _exit(0);
    StopAndWake(process, length);
  }
  const int error = errno;
  close(process);
  if (child < 0) return absl::ErrnoToStatus(error, "starting the process that wakes this one");
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return absl::OkStatus();
}

absl::Status Kill(Common& common) {
  return common.pool.Post([] {
    std::this_thread::sleep_for(kAMoment);
    kill(getpid(), SIGKILL);
  });
}

}  // namespace

FaultHook ProcessFaults(Common& common) {
  if (!common.config.security.allow_faults) return {};
  return [&common](const proto::InjectFault& fault) -> absl::Status {
    const Duration length(fault.duration_ns());
    switch (fault.kind()) {
      case proto::InjectFault::KILL_DAEMON:
        return Kill(common);
      case proto::InjectFault::STOP_DAEMON:
        TROUPE_RETURN_IF_ERROR(CheckLength(length));
        return StopFor(length);
      case proto::InjectFault::CUT_TENSORS:
        TROUPE_RETURN_IF_ERROR(CheckLength(length));
        if (common.cut == nullptr)
          return absl::FailedPreconditionError(
              "this daemon is a whole cluster (--role all): its tensors go to no other daemon");
        common.cut->Until(transport::SteadyNow() + length);
        return absl::OkStatus();
      default:
        return absl::InvalidArgumentError(
            absl::StrCat(FaultName(fault.kind()), " is for nodes, which have GPU workers; name one of them"));
    }
  };
}

}  // namespace troupe::actors

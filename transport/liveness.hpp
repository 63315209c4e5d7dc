// Other processes: starting them, and knowing without polling that they died.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "transport/memory_file.hpp"

namespace troupe::transport {

// How a process ended.
struct ProcessEnd {
  bool signaled = false;
  int code = 0;  // exit code, or the signal's number
  [[nodiscard]] bool clean() const { return !signaled && code == 0; }
  // "exit code 3", "signal 9 (Killed)".
  [[nodiscard]] std::string ToString() const;
};

// A process, by pidfd: the number cannot come to mean another process. fd() becomes readable when it has
// ended, so one thread can wait for many. Destroying the handle does nothing to the process. One thread at a
// time.
class ProcessHandle {
 public:
  ProcessHandle() = default;
  // A process that may be no child of ours (a worker that outlived the daemon that made it). NotFound when it
  // is gone.
  static absl::StatusOr<ProcessHandle> Open(pid_t pid);

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] int fd() const { return pidfd_.get(); }
  [[nodiscard]] bool valid() const { return pidfd_.valid(); }
  [[nodiscard]] bool IsDead() const;
  // NotFound when it has ended.
  absl::Status Signal(int signal) const;
  // Waits for the end and reaps a child of ours (once). DeadlineExceeded while it runs. How a process that is
  // not our child ended is unknown: FailedPrecondition when it has ended.
  absl::StatusOr<ProcessEnd> Wait(Duration timeout) const;

 private:
  UniqueFd pidfd_;
  pid_t pid_ = 0;
};

// `source` in this process becomes `target` (3 or more) in the child.
struct InheritedFd {
  int source = -1;
  int target = -1;
};

struct SpawnOptions {
  std::vector<std::string> arguments;  // [0] is the program: a path, never searched for
  std::vector<std::pair<std::string, std::string>> environment;  // on top of ours
  std::vector<InheritedFd> descriptors;                          // all others are closed in the child
  int log = -1;                                                  // its stdout and stderr; -1: ours
};

// Starts a process in a session of its own with default signals and stdin from /dev/null. It outlives us
// until it is told otherwise. NotFound when there is no such program.
absl::StatusOr<ProcessHandle> SpawnProcess(const SpawnOptions& options);

}  // namespace troupe::transport

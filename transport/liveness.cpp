#include "transport/liveness.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/steady_clock.hpp"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

extern char** environ;

namespace troupe::transport {
namespace {

// Sources are first copied to here and above, so that no dup2 onto a target overwrites a source that is still
// needed.
constexpr int kStaging = 256;
constexpr int kFirstTarget = 3;

// The C arrays that posix_spawn wants, over strings that outlive the call.
std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(const std::vector<std::pair<std::string, std::string>>& changes) {
  std::map<std::string, std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) merged.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  for (const auto& [name, value] : changes) merged.insert_or_assign(name, value);
  std::vector<std::string> environment;
  for (const auto& [name, value] : merged) environment.push_back(absl::StrCat(name, "=", value));
  return environment;
}

// posix_spawn's two option objects, and the staged descriptors.
class Setup {
 public:
  Setup() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;
  ~Setup() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }

  // Default signals, none blocked, a session of its own: a Ctrl-C meant for us does not reach it.
  void DefaultSignals() {
    sigset_t all;
    sigfillset(&all);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
  }

  absl::Status Descriptors(const SpawnOptions& options) {
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (options.log >= 0) {
      TROUPE_RETURN_IF_ERROR(Place(options.log, STDOUT_FILENO));
      TROUPE_RETURN_IF_ERROR(Place(options.log, STDERR_FILENO));
    }
    int beyond = kFirstTarget;
    std::vector<bool> taken(kStaging, false);
    for (const InheritedFd& fd : options.descriptors) {
      if (fd.target < kFirstTarget || fd.target >= kStaging || taken[static_cast<std::size_t>(fd.target)]) {
        return absl::InvalidArgumentError(absl::StrCat("descriptor ", fd.target, " in a child: must be ",
                                                       kFirstTarget, " to ", kStaging - 1, ", each once"));
      }
      taken[static_cast<std::size_t>(fd.target)] = true;
      TROUPE_RETURN_IF_ERROR(Place(fd.source, fd.target));
      beyond = std::max(beyond, fd.target + 1);
    }
    for (int fd = kFirstTarget; fd < beyond; ++fd) {
      if (!taken[static_cast<std::size_t>(fd)]) posix_spawn_file_actions_addclose(&actions, fd);
    }
    posix_spawn_file_actions_addclosefrom_np(&actions, beyond);
    return absl::OkStatus();
  }

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

 private:
  absl::Status Place(int source, int target) {
    UniqueFd copy(fcntl(source, F_DUPFD_CLOEXEC, kStaging));
    if (!copy.valid()) return ErrnoStatus(errno, absl::StrCat("passing descriptor ", source, " to a child"));
    posix_spawn_file_actions_adddup2(&actions, copy.get(), target);
    staged_.push_back(std::move(copy));
    return absl::OkStatus();
  }
  std::vector<UniqueFd> staged_;
};

}  // namespace

std::string ProcessEnd::ToString() const {
  if (!signaled) return absl::StrCat("exit code ", code);
  const char* name = sigdescr_np(code);
  return absl::StrCat("signal ", code, " (", name != nullptr ? name : "unknown", ")");
}

absl::StatusOr<ProcessHandle> ProcessHandle::Open(pid_t pid) {
  ProcessHandle handle;
  handle.pid_ = pid;
  handle.pidfd_ = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (handle.valid()) return handle;
  if (errno == ESRCH) return absl::NotFoundError(absl::StrCat("there is no process ", pid));
  return ErrnoStatus(errno, absl::StrCat("watching process ", pid));
}

bool ProcessHandle::IsDead() const {
  pollfd entry{fd(), POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&entry, 1, 0);
  } while (ready < 0 && errno == EINTR);
  return ready != 0;
}

absl::Status ProcessHandle::Signal(int signal) const {
  if (syscall(SYS_pidfd_send_signal, fd(), signal, nullptr, 0) == 0) return absl::OkStatus();
  if (errno == ESRCH) return absl::NotFoundError(absl::StrCat("process ", pid_, " has ended"));
  return ErrnoStatus(errno, absl::StrCat("sending signal ", signal, " to process ", pid_));
}

absl::StatusOr<ProcessEnd> ProcessHandle::Wait(Duration timeout) const {
  const Time deadline = SteadyNow() + timeout;
  pollfd entry{fd(), POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&entry, 1, PollMillis(deadline));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) {
    return absl::DeadlineExceededError(
        absl::StrCat("process ", pid_, " still runs after ", FormatDuration(timeout)));
  }
  siginfo_t info{};
  if (waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(fd()), &info, WEXITED) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", pid_, " has ended; how is known to its parent only"));
  }
  return ProcessEnd{info.si_code != CLD_EXITED, info.si_status};
}

absl::StatusOr<ProcessHandle> SpawnProcess(const SpawnOptions& options) {
  if (options.arguments.empty()) return absl::InvalidArgumentError("a process to start needs a program");
  Setup setup;
  setup.DefaultSignals();
  TROUPE_RETURN_IF_ERROR(setup.Descriptors(options));
  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> environment = Environment(options.environment);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, arguments[0].c_str(), &setup.actions, &setup.attributes,
                                Pointers(arguments).data(), Pointers(environment).data());
  if (error != 0) return ErrnoStatus(error, absl::StrCat("starting ", arguments[0]));
  // Ours and not reaped yet, so the number cannot have come to mean another process.
  auto process = ProcessHandle::Open(pid);
  if (!process.ok()) {
    (void)kill(pid, SIGKILL);  // it could not be watched
    (void)waitpid(pid, nullptr, 0);
  }
  return process;
}

}  // namespace troupe::transport

#include "gpu/import/import_runner.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.hpp"
#include "proto/precision.hpp"

namespace troupe::gpu {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kMaxOutput = 1 << 20;  // of each pipe; what the child says beyond is dropped

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  [[nodiscard]] int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

struct Pipe {
  Descriptor read, write;
};

absl::StatusOr<Pipe> MakePipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    return absl::UnavailableError(
        absl::StrCat("cannot make a pipe for the importer: ", std::strerror(errno)));
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

// A child that is killed and reaped at the latest when this goes out of scope.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    if (pid_ <= 0) return;
    Kill();
    (void)Wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void Kill() const { (void)kill(pid_, SIGKILL); }
  int Wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_;
};

std::vector<std::string> Arguments(const std::filesystem::path& program, const std::filesystem::path& onnx,
                                   const std::filesystem::path& output, const ImportLimits& limits) {
  std::vector<std::string> arguments = {
      program.string(),
      "--onnx",
      onnx.string(),
      "--output",
      output.string(),
      "--memory-limit",
      absl::StrCat(limits.memory.count()),
      "--time-limit",
      absl::StrCat(std::chrono::ceil<std::chrono::milliseconds>(limits.time).count(), "ms"),
      "--limit-nodes",
      absl::StrCat(limits.nodes),
      "--sandbox",
      std::string(NameIn(kImportSandboxes, limits.sandbox))};
  if (limits.pack) arguments.push_back("--pack");
  if (limits.precision != proto::PRECISION_FP32)
    arguments.insert(arguments.end(), {"--precision", std::string(proto::Name(limits.precision))});
  if (limits.stages.any())
    arguments.insert(arguments.end(), {"--stage-above", absl::StrCat(limits.stages.above.count()),
                                       "--stage-most", absl::StrCat(limits.stages.most.count())});
  return arguments;
}

absl::StatusOr<pid_t> Spawn(std::vector<std::string> arguments, const Pipe& out, const Pipe& err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.write.get(), 2);
  // The daemon's masks and ignored signals are not the child's.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  // Nothing of the daemon's environment is the importer's business; one thread is what the limits are made
  // for.
  std::string threads = "OMP_NUM_THREADS=1";
  std::array<char*, 2> environment = {threads.data(), nullptr};
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    return absl::InternalError(
        absl::StrCat("cannot start the importer '", arguments[0], "': ", std::strerror(error)));
  return pid;
}

struct Said {
  std::string out, err;
  bool in_time = false;
};

// Reads one pipe; false when it has ended.
bool Drain(int fd, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t n = read(fd, buffer.data(), buffer.size());
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (text.size() < kMaxOutput) text.append(buffer.data(), static_cast<std::size_t>(n));
  return n > 0;
}

// Lines of progress are taken out of `text`, so that they do not count against its bound. The last of them is
// told.
void TakeProgress(std::string& text, const OnImportProgress& on_progress) {
  std::optional<ImportProgress> last;
  std::size_t begin = 0;
  for (auto end = text.find('\n'); end != text.npos; end = text.find('\n', begin)) {
    if (const auto progress = ParseProgress(std::string_view(text).substr(begin, end - begin))) {
      last = progress;
      text.erase(begin, end + 1 - begin);
    } else {
      begin = end + 1;
    }
  }
  if (last && on_progress) on_progress(*last);
}

// Until both pipes end, which is when the child does: it starts no other program.
Said Listen(Pipe& out, Pipe& err, SteadyClock::time_point deadline,
            const OnImportProgress& on_progress = nullptr) {
  Said said;
  std::array<pollfd, 2> fds = {pollfd{out.read.get(), POLLIN, 0}, pollfd{err.read.get(), POLLIN, 0}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
    if (left <= 0) return said;
    const int ready = poll(fds.data(), fds.size(), static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (ready <= 0) continue;
    if (fds[0].revents != 0 && !Drain(fds[0].fd, said.out)) fds[0].fd = -1;
    TakeProgress(said.out, on_progress);
    if (fds[1].revents != 0 && !Drain(fds[1].fd, said.err)) fds[1].fd = -1;
  }
  said.in_time = true;
  return said;
}

std::string LastLine(const std::string& text) {
  const auto stripped = absl::StripAsciiWhitespace(text);
  const auto newline = stripped.rfind('\n');
  return std::string(newline == stripped.npos ? stripped : stripped.substr(newline + 1));
}

absl::Status OverTime(const ImportLimits& limits) {
  return absl::ResourceExhaustedError(absl::StrCat("the import took longer than its limit of ",
                                                   FormatDuration(limits.time),
                                                   "; allow more time or use a simpler model"));
}

absl::StatusOr<std::vector<ImportReport>> Judge(int status, const Said& said, const ImportLimits& limits) {
  if (WIFSIGNALED(status)) {
    if (WTERMSIG(status) == SIGXCPU) return OverTime(limits);
    // RLIMIT_CPU ends with SIGKILL, and so does a machine that is out of memory: both are the file's doing.
    if (WTERMSIG(status) == SIGKILL)
      return absl::ResourceExhaustedError(
          "the import was killed: it used more memory or time than this machine gives it");
    if (WTERMSIG(status) == SIGSYS)
      return absl::InvalidArgumentError(
          "the import was ended by its jail: it asked the kernel for something that no import needs; the "
          "file "
          "is hostile, or please report it with the file");
    return absl::InternalError(absl::StrCat("the importer crashed (", strsignal(WTERMSIG(status)),
                                            ") on this file; please report it with the file"));
  }
  const auto exit = static_cast<ImportExit>(WEXITSTATUS(status));
  if (exit == ImportExit::kOk) return ParseReports(said.out);
  const std::string message = LastLine(said.err);
  const absl::Status failed =
      StatusOf(exit, message.empty() ? "the importer failed and gave no reason" : message);
  return absl::StrContains(message, std::strerror(ENOSPC)) ? MarkDiskFull(failed) : failed;
}

}  // namespace

absl::StatusOr<std::vector<ImportReport>> RunImport(const std::filesystem::path& program,
                                                    const std::filesystem::path& onnx,
                                                    const std::filesystem::path& output,
                                                    const ImportLimits& limits,
                                                    const OnImportProgress& on_progress) {
  TROUPE_ASSIGN_OR_RETURN(Pipe out, MakePipe());
  TROUPE_ASSIGN_OR_RETURN(Pipe err, MakePipe());
  const auto deadline = SteadyClock::now() + 2 * limits.time;
  TROUPE_ASSIGN_OR_RETURN(const pid_t pid, Spawn(Arguments(program, onnx, output, limits), out, err));
  Child child(pid);
  out.write.Close();
  err.write.Close();
  const Said said = Listen(out, err, deadline, on_progress);
  if (!said.in_time) return OverTime(limits);
  return Judge(child.Wait(), said, limits);
}

namespace {

// What it says with this one flag, within 10 s.
absl::StatusOr<std::string> Ask(const std::filesystem::path& program, const std::string& flag) {
  TROUPE_ASSIGN_OR_RETURN(Pipe out, MakePipe());
  TROUPE_ASSIGN_OR_RETURN(Pipe err, MakePipe());
  TROUPE_ASSIGN_OR_RETURN(const pid_t pid, Spawn({program.string(), flag}, out, err));
  Child child(pid);
  out.write.Close();
  err.write.Close();
  const Said said = Listen(out, err, SteadyClock::now() + std::chrono::seconds(10));
  const std::string line = LastLine(said.out);
  if (said.in_time && !line.empty()) return line;
  return absl::UnavailableError(
      absl::StrCat("the importer '", program.string(), "' does not answer ", flag, ": ", LastLine(said.err)));
}

}  // namespace

absl::StatusOr<std::string> AskPackTarget(const std::filesystem::path& program) {
  return Ask(program, "--pack-target");
}

absl::StatusOr<std::string> ProbeJail(const std::filesystem::path& program) {
  TROUPE_ASSIGN_OR_RETURN(const std::string line, Ask(program, "--probe-jail"));
  absl::string_view rest = line;
  if (!absl::ConsumePrefix(&rest, "jail"))
    return absl::UnavailableError(absl::StrCat("the importer's jail says '", line, "'"));
  rest = absl::StripAsciiWhitespace(rest);
  if (absl::ConsumePrefix(&rest, "missing: "))
    return absl::FailedPreconditionError(NoJail(std::string(rest)));
  (void)absl::ConsumePrefix(&rest, "lacking: ");
  return std::string(rest);
}

}  // namespace troupe::gpu

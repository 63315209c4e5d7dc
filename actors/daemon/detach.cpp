#include "actors/daemon/detach.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::actors {

namespace {

void WriteAll(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const auto written = write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // the command was interrupted: the daemon goes on without it
    done += static_cast<std::size_t>(written);
  }
}

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> piece;
  for (;;) {
    const auto got = read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
}

// In the command: the first byte is the exit code, the rest is for people.
[[noreturn]] void AwaitStart(int pipe, pid_t daemon, const std::string& log) {
  const auto told = ReadAll(pipe);
  if (told.empty()) {
    int ended = 0;
    waitpid(daemon, &ended, 0);
    std::fprintf(stderr, "trouped: it ended before it served; its log is %s\n", log.c_str());
    std::_Exit(1);
  }
  const auto code = static_cast<std::uint8_t>(told.front());
  if (code == 0) {
    std::printf("%s\nprocess %d, log %s; stop it with: kill %d\n", told.c_str() + 1, daemon, log.c_str(),
                daemon);
  } else {
    std::fprintf(stderr, "trouped: %s\n", told.c_str() + 1);
  }
  std::fflush(nullptr);
  std::_Exit(code);
}

absl::Status SystemError(const std::string& what) {
  return absl::ErrnoToStatus(errno, what);
}

}  // namespace

StartReport::~StartReport() {
  if (pipe_ >= 0) close(pipe_);
}

StartReport::StartReport(StartReport&& other) noexcept : pipe_(std::exchange(other.pipe_, -1)) {}

void StartReport::Tell(int exit_code, const std::string& text) {
  if (pipe_ < 0) return;
  WriteAll(pipe_, std::string(1, static_cast<char>(exit_code)) + text);
  close(std::exchange(pipe_, -1));
}

void StartReport::Ready(const std::string& line) {
  Tell(0, line);
}

void StartReport::Failed(const std::string& why, int exit_code) {
  Tell(exit_code, why);
}

absl::StatusOr<StartReport> Detach(const std::string& log) {
  std::error_code problem;
  std::filesystem::create_directories(std::filesystem::path(log).parent_path(), problem);
  const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  if (output < 0) return SystemError(absl::StrCat("--detach writes the log to ", log));
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::array<int, 2> ends{-1, -1};
  if (input < 0 || pipe2(ends.data(), O_CLOEXEC) != 0) return SystemError("--detach opens a pipe");
  const pid_t daemon = fork();
  if (daemon < 0) return SystemError("--detach starts a process");
  if (daemon > 0) {
    close(ends[1]);
    AwaitStart(ends[0], daemon, log);
  }
  close(ends[0]);
  setsid();
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  close(input);
  close(output);
  return StartReport(ends[1]);
}

}  // namespace troupe::actors

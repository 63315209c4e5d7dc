#include "shell/child_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "shell/text/cat.hpp"

extern char** environ;

namespace troupe::shell {

namespace {

constexpr std::size_t kMostKept = 1u << 20;

// Reads what is there; false when the other end has closed the pipe.
bool ReadSome(int pipe, std::string& kept) {
  std::array<char, 4096> piece;
  const ssize_t got = read(pipe, piece.data(), piece.size());
  if (got < 0) return errno == EINTR;
  const auto count = static_cast<std::size_t>(got);
  kept.append(piece.data(), std::min(count, kMostKept - std::min(kMostKept, kept.size())));
  return got > 0;
}

// Until both pipes are closed.
void ReadBoth(int out, int err, ChildOutcome& outcome) {
  std::array<pollfd, 2> pipes{{{out, POLLIN, 0}, {err, POLLIN, 0}}};
  while (pipes[0].fd >= 0 || pipes[1].fd >= 0) {
    if (poll(pipes.data(), pipes.size(), -1) < 0 && errno != EINTR) return;
    if (pipes[0].revents != 0 && !ReadSome(out, outcome.out)) pipes[0].fd = -1;
    if (pipes[1].revents != 0 && !ReadSome(err, outcome.err)) pipes[1].fd = -1;
  }
}

int ExitOf(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::filesystem::path FindHelper(const std::string& name) {
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& folder : {here, here.parent_path() / "libexec" / "troupe"})
    if (access((folder / name).c_str(), X_OK) == 0) return folder / name;
  return {};
}

absl::StatusOr<ChildOutcome> RunChild(const std::filesystem::path& program,
                                      const std::vector<std::string>& arguments) {
  std::array<int, 2> out{-1, -1}, err{-1, -1};
  const absl::Cleanup close_all = [&] {
    for (const int pipe : {out[0], out[1], err[0], err[1]})
      if (pipe >= 0) close(pipe);
  };
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0)
    return absl::InternalError(Cat("cannot make a pipe: ", std::strerror(errno)));
  std::vector<std::string> words = {program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const absl::Cleanup forget = [&] { posix_spawn_file_actions_destroy(&actions); };
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  pid_t child = 0;
  if (const int failed = posix_spawn(&child, program.c_str(), &actions, nullptr, pointers.data(), environ);
      failed != 0)
    return absl::InternalError(Cat("cannot start ", program.string(), ": ", std::strerror(failed)));
  for (int* const pipe : {&out[1], &err[1]}) close(std::exchange(*pipe, -1));
  ChildOutcome outcome;
  ReadBoth(out[0], err[0], outcome);
  outcome.exit = ExitOf(child);
  return outcome;
}

}  // namespace troupe::shell

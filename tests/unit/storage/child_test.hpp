// Runs one test of this binary in a process of its own. A plain fork would inherit RocksDB's idea of having
// threads that the child does not have.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace troupe::storage {

inline constexpr char kChildDirectory[] = "TROUPE_TEST_CHILD_DIRECTORY";

// Starts the disabled test `filter`, which finds `directory` in kChildDirectory. `before` runs in the child,
// first; false: the child exits with 77.
template <typename Before>
pid_t StartChildTest(const std::string& filter, const std::string& directory, Before&& before) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (!before()) _exit(77);
  ::setenv(kChildDirectory, directory.c_str(), 1);
  const std::string argument = "--gtest_filter=" + filter;
  ::execl("/proc/self/exe", "child", argument.c_str(), "--gtest_also_run_disabled_tests", "--gtest_brief=1",
          nullptr);
  _exit(78);
}

// The exit code of the process, or 128 + the signal.
inline int WaitForChild(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline constexpr int kAcknowledgements = 3;  // the child's descriptor for what RunUntilKilled returns

// Runs a child that writes its progress to kAcknowledgements, and kills it once it has written `kill_after`
// bytes. Returns all that it wrote.
inline std::string RunUntilKilled(const std::string& filter, const std::string& directory,
                                  std::size_t kill_after) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = StartChildTest(filter, directory, [&] {
    // A dup2 of a descriptor onto itself would leave it to be closed by exec.
    return ends[1] == kAcknowledgements ? ::fcntl(ends[1], F_SETFD, 0) == 0
                                        : ::dup2(ends[1], kAcknowledgements) == kAcknowledgements;
  });
  ::close(ends[1]);
  std::string told;
  char buffer[64];
  bool killed = false;
  for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    told.append(buffer, static_cast<std::size_t>(got));
    if (told.size() >= kill_after && !killed) killed = ::kill(child, SIGKILL) == 0;
  }
  ::close(ends[0]);
  EXPECT_EQ(WaitForChild(child), 128 + SIGKILL);
  return told;
}

}  // namespace troupe::storage

// Runs one test of this binary in a process of its own. A plain fork would inherit RocksDB's idea of having
// threads that the child does not have.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

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

// The exit code, or 128 + the signal.
inline int WaitForChild(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace troupe::storage

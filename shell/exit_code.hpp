// EXIT CODES: what the program's end means to a script. `troupe --help` and shell/README.md list them.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace troupe::shell {

enum class ExitCode : int {
  kOk = 0,
  kRefused = 1,      // the cluster was asked and said no
  kUsage = 2,        // the command, an argument or an input file is wrong; nothing was done
  kNotFound = 3,     // no such function, version, node, GPU, workflow or run
  kUnreachable = 4,  // the cluster, or the part of it that is needed, is not there
  kTimedOut = 5,
  kInterrupted = 130,
};

// The table of the codes, for help.
inline constexpr std::string_view kExitCodeHelp =
    "Exit codes:\n"
    "  0  done\n"
    "  1  the cluster refused (or you did, when asked)\n"
    "  2  the command, an argument or an input file is wrong; nothing was done\n"
    "  3  there is no such function, version, node, GPU, workflow or run\n"
    "  4  the cluster, or the part of it that is needed, cannot be reached\n"
    "  5  it took longer than --timeout\n"
    "  130  interrupted by Ctrl-C\n";

// An error found before the cluster was asked, or by the cluster before it did anything.
[[nodiscard]] absl::Status UsageError(std::string_view message);
// The same message, now as the user's error: what reading an input file found wrong.
[[nodiscard]] absl::Status AsUsageError(const absl::Status& status);
[[nodiscard]] absl::Status InterruptedError();
// For a verb that changes the cluster. When the time is up the shell stops waiting and says so; the change
// goes on.
[[nodiscard]] absl::Status AsUnfinished(const absl::Status& status);

[[nodiscard]] ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace troupe::shell

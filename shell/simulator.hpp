// SIMULATOR: `troupe simulate` and `troupe experiment` are the program troupe-sim, which stands beside this
// one; what they take is its own business (`troupe simulate --help`).
#pragma once

#include <string>
#include <vector>

#include "shell/console.hpp"
#include "shell/exit_code.hpp"

namespace troupe::shell {

[[nodiscard]] bool IsForSimulator(const std::vector<std::string>& words);
// Becomes troupe-sim; returns only when there is none.
ExitCode BecomeSimulator(Console& console, const std::vector<std::string>& words);

// For help: the words and what they do.
struct SimulatorVerb {
  const char* words;
  const char* summary;
};
[[nodiscard]] const std::vector<SimulatorVerb>& SimulatorVerbs();

}  // namespace troupe::shell

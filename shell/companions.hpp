// COMPANIONS: the commands that other programs carry out, which stand beside this one: `troupe simulate` and
// `troupe experiment` are troupe-sim, `troupe store` and `troupe audit` are troupe-store. What they take is
// their own business
// (`troupe simulate --help`).
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "shell/console.hpp"
#include "shell/exit_code.hpp"

namespace troupe::shell {

[[nodiscard]] bool IsForCompanion(const std::vector<std::string>& words);
// Becomes that program; returns only when it is not there.
ExitCode BecomeCompanion(Console& console, const std::vector<std::string>& words);

// For help: the words and what they do.
struct CompanionVerb {
  const char* words;
  const char* summary;

  [[nodiscard]] std::string word() const { return std::string(words, std::strcspn(words, " ")); }
};
[[nodiscard]] const std::vector<CompanionVerb>& CompanionVerbs();

}  // namespace troupe::shell

// CHILD PROGRAM: another program of this project, started for one question and waited for.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace troupe::shell {

struct ChildOutcome {
  int exit = 0;  // its exit code; 128 and the signal that ended it
  std::string out;
  std::string err;
};

// The program of this name beside this one, or where packages put programs that only others start; empty: there is none.
[[nodiscard]] std::filesystem::path FindHelper(const std::string& name);

// Runs the program to its end. What it prints is kept up to 1 MiB, and read on and forgotten beyond.
// Internal: it could not be started.
[[nodiscard]] absl::StatusOr<ChildOutcome> RunChild(const std::filesystem::path& program,
                                                    const std::vector<std::string>& arguments);

}  // namespace troupe::shell

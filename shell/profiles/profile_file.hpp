// PROFILE FILE: a profile as a file that another cluster can import: CSV, or JSON as `--json` prints it. Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/admin.pb.h"

namespace troupe::shell {

inline constexpr Bytes kMostProfileFile = MiB(4);

// A header, and a line for each row; each line says of which model, kind and precision it is.
[[nodiscard]] std::string ProfileCsv(const proto::FunctionProfile& profile);
// Exactly one profile: CSV with the header above, or JSON (a FunctionProfile, or an AdminReply that has one). Whether
// its figures can be true is the manager's to judge. InvalidArgument names the line of a CSV file.
[[nodiscard]] absl::StatusOr<proto::FunctionProfile> ReadProfile(const std::string& text);

}  // namespace troupe::shell

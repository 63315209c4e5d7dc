// Traces as files: what is wrong with one is said with its line, its column and what was expected there.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "sim/traces/workload.hpp"

namespace troupe::sim {

// Reads a table with commas whose first line names the columns:
//   counts    a name (`function`, `func` or `HashFunction`), perhaps a model (`model` or `table1_model`), and
//             the minutes in order: m0 m1 ..., 1_minute ..., or 1 2 ...; other columns are passed over
//   arrivals  `seconds` and `function`, perhaps `model`: a request a line, in any order
// `name` is what the messages call the file. InvalidArgument: NAME:LINE:COLUMN and what was expected.
[[nodiscard]] absl::StatusOr<std::variant<MinuteCounts, Workload>> ParseTrace(std::string_view text,
                                                                              const std::string& name);
// As a file, perhaps compressed with gzip; NotFound when it is not there.
[[nodiscard]] absl::StatusOr<std::variant<MinuteCounts, Workload>> ReadTrace(const std::string& path);

[[nodiscard]] absl::StatusOr<Spread> ParseSpread(const std::string& name);

}  // namespace troupe::sim

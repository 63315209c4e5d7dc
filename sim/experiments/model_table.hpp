// What the models of 003's Table I cost, as typed from the paper.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/cluster_file.hpp"

namespace troupe::sim {

// A table with commas: model, occupation_mb (of a GPU, at its peak), loading_s, inference_s_batch32. NotFound
// when there is no such file; InvalidArgument names the line and what was expected.
[[nodiscard]] absl::StatusOr<std::vector<ModelSpec>> ReadModelTable(const std::string& path);

}  // namespace troupe::sim

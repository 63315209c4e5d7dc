// Puts steps in an order in which every input is produced before it is read.
#pragma once

#include "absl/status/status.h"
#include "gpu/import/graph.hpp"

namespace troupe::gpu {

// Keeps the order of the file where it is possible. Errors: a value with two producers, a value that nothing
// produces, a cycle (its steps are named), an output that nothing produces.
[[nodiscard]] absl::Status SortSteps(Graph& graph);

}  // namespace troupe::gpu

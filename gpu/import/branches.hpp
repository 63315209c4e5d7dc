// If steps: kept beside the graph while it is read, and replaced by one branch where the condition is a
// constant. There is no If at run time: what is left is refused like any unknown operator.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/import/graph.hpp"

namespace troupe::gpu {

// Adds the If `step` with its branches, named "then_branch" and "else_branch", to `graph`.
[[nodiscard]] absl::Status AddIf(proto::Step step, const std::vector<std::shared_ptr<const Graph>>& branches,
                                 const std::vector<std::string>& names, Graph& graph);

// Replaces every If whose condition is a constant by the steps of its branch. True: there was one.
[[nodiscard]] absl::StatusOr<bool> InlineBranches(Graph& graph);

}  // namespace troupe::gpu

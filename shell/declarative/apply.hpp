// APPLY: from what a person names to a plan, and from the plan to the cluster.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "shell/declarative/plan.hpp"
#include "shell/session.hpp"

namespace troupe::shell {

// Reads and checks everything, and asks the cluster what it has. Nothing is changed.
[[nodiscard]] absl::StatusOr<Plan> Prepare(Session& session, const std::string& source, Pruning pruning);

// "+ function digits version 2", its details under it; then how many changes there are.
[[nodiscard]] std::string ShowPlan(const Plan& plan, const Style& style);
// "2 changes, 3 unchanged"
[[nodiscard]] std::string CountPlan(const Plan& plan);

// Makes the changes in their order. `done`: how many were made. At the first that fails the error says where it stands
// in the files, what was done and what was not.
[[nodiscard]] absl::Status CarryOut(Session& session, const Plan& plan, std::size_t& done);

}  // namespace troupe::shell

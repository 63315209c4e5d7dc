// OWNERSHIP CHECK: what the manager lists of the parts of GPUs that functions own, and what the nodes obey. What must
// hold: the rectangles of a GPU do not overlap and are no larger than it; each is on a node that is there, and of the
// size that its function requests or may have by its load; a function has no more of them than instances; and each node
// obeys just these. Knows nothing of the manager's plan.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/admin.pb.h"

namespace troupe::sim {

// A line for each rule that was broken. `nodes`: what those that are there say of themselves.
[[nodiscard]] std::vector<std::string> CheckOwnership(const std::vector<proto::FunctionRecord>& functions,
                                                      const std::vector<proto::NodeDescription>& nodes);

}  // namespace troupe::sim

// What the ownership plan and the autoscaler tell each other of functions that are scaled.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "cluster/function_table.hpp"
#include "cluster/rectangles/rectangle_table.hpp"

namespace troupe::cluster {

struct ScaledOwner {
  std::vector<InstanceId> instances{};  // that have rectangles, and serve
  NodeNames nodes{};                    // where new ones may be
};
// The scaled functions that own a part of a GPU, or of which members told a load.
using ScaledOwners = std::map<FunctionVersion, ScaledOwner>;

// Changes what these functions own of the table. New instances have the numbers behind `last_id`.
using Rescale = std::function<void(RectangleTable& table, InstanceId& last_id, ScaledOwners& owners)>;

}  // namespace troupe::cluster

// A model's weights in the pieces in which they come.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.hpp"
#include "gpu/device/device.hpp"
#include "proto/model.pb.h"

namespace troupe::gpu {

// Weights lie in execution order, so groups are consecutive ranges and arrive in that order.
struct Group {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  friend bool operator==(const Group&, const Group&) = default;
};

// Groups of `size` (the last one smaller) over all weights; small tensors share one, large ones have several.
// At least one group, which is empty for a model without weights.
[[nodiscard]] std::vector<Group> CutEvenly(Bytes weights, Bytes size);
// A group per tensor, in the order in which they lie; what lies between two belongs to the first. The model
// has been checked: its tensors lie in the weights.
[[nodiscard]] std::vector<Group> CutByTensor(const proto::Model& model, Bytes weights);

// For each step of the plan: how many groups, from the first, hold all that it reads.
[[nodiscard]] std::vector<std::uint32_t> GroupsNeeded(const DevicePlan& plan, std::span<const Group> groups);

}  // namespace troupe::gpu

// What a node learned of its models, as a message to be kept on its disk, and back. When it is written, and
// read again: node/models/kept_profiles.hpp.
#pragma once

#include "absl/status/status.h"
#include "node/gpu_kinds.hpp"
#include "node/scheduling/swap_scheduler.hpp"
#include "proto/profile.pb.h"

namespace troupe::node {

[[nodiscard]] proto::NodeProfiles ExportProfiles(const SwapScheduler& scheduler, const GpuKinds& kinds);
// InvalidArgument for a format that is not known; numbers and kinds that make no sense are left out. What names
// no kind, as all of format 1, is taken to be of the first GPU's kind. What is imported is a first guess:
// observations move it like any other. Kinds that the node has no GPUs of are remembered: their times stand
// for those of kinds on which a model is not known (scheduling/kind_costs.hpp).
[[nodiscard]] absl::Status ImportProfiles(const proto::NodeProfiles& profiles, GpuKinds& kinds,
                                          SwapScheduler& scheduler);

}  // namespace troupe::node

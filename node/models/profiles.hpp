// What a node learned of its models, as a message to be kept on its disk, and back. When it is written, and
// read again: node/models/kept_profiles.hpp.
#pragma once

#include "absl/status/status.h"
#include "node/scheduling/swap_scheduler.hpp"
#include "proto/profile.pb.h"

namespace troupe::node {

[[nodiscard]] proto::NodeProfiles ExportProfiles(const SwapScheduler& scheduler);
// InvalidArgument for another format; numbers that make no sense are left out. What is imported is a first
// guess: observations move it like any other.
[[nodiscard]] absl::Status ImportProfiles(const proto::NodeProfiles& profiles, SwapScheduler& scheduler);

}  // namespace troupe::node

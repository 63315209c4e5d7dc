// The `replicas` slot: how many nodes have a host copy of a model.
#pragma once

#include <span>
#include <string_view>

#include "base/policy.hpp"

namespace troupe::cluster {

// `forecast` (default): more than every model has, where the model's load needs them, or soon will if it goes on to grow.
// `demand`: where its load needs them now.
// `fixed`: as many as every model has.
enum class ReplicaPolicy { kForecast, kDemand, kFixed };

[[nodiscard]] std::span<const PolicyEntry<ReplicaPolicy>> ReplicaPolicies();
[[nodiscard]] absl::StatusOr<ReplicaPolicy> FindReplicaPolicy(std::string_view name);

}  // namespace troupe::cluster

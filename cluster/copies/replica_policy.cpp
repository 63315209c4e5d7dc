#include "cluster/copies/replica_policy.hpp"

#include <array>

namespace troupe::cluster {

std::span<const PolicyEntry<ReplicaPolicy>> ReplicaPolicies() {
  static constexpr std::array<PolicyEntry<ReplicaPolicy>, 3> kTable = {{
      {"forecast",
       "more nodes than --replicas have a copy of a model whose load needs them, or soon will as it grows",
       ReplicaPolicy::kForecast},
      {"demand", "more nodes than --replicas have a copy of a model whose load needs them now",
       ReplicaPolicy::kDemand},
      {"fixed", "as many nodes as --replicas says have a copy of each model", ReplicaPolicy::kFixed},
  }};
  return kTable;
}

absl::StatusOr<ReplicaPolicy> FindReplicaPolicy(std::string_view name) {
  return FindPolicy<ReplicaPolicy>("replicas", name, ReplicaPolicies());
}

}  // namespace troupe::cluster

#include "cluster/copies/replica_policy.hpp"

#include <array>

namespace troupe::cluster {

std::span<const PolicyEntry<ReplicaPolicy>> ReplicaPolicies() {
  static constexpr std::array<PolicyEntry<ReplicaPolicy>, 2> kTable = {{
      {"demand", "more nodes than --replicas have a copy of a model whose load needs them",
       ReplicaPolicy::kDemand},
      {"fixed", "as many nodes as --replicas says have a copy of each model", ReplicaPolicy::kFixed},
  }};
  return kTable;
}

absl::StatusOr<ReplicaPolicy> FindReplicaPolicy(std::string_view name) {
  return FindPolicy<ReplicaPolicy>("replicas", name, ReplicaPolicies());
}

}  // namespace troupe::cluster

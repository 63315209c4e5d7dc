// UPDATE FEED: what the manager tells the members of functions, workflows, API keys and each other. A change
// is told once, to all of them, as what it changed; so it costs what has changed, not what the cluster has.
// Who missed one finds the gap, or hears of it with a heartbeat, and asks for what changed since what it
// knows. Owned by the cluster manager.
#pragma once

#include <cstdint>

#include "actors/manager/catalogue.hpp"
#include "cluster/membership_table.hpp"
#include "proto/cluster.pb.h"

namespace troupe::actors {

class UpdateFeed {
 public:
  // No member was told anything yet: a member that joins gets it all.
  explicit UpdateFeed(const Catalogue& catalogue);

  // For everybody: what has changed since the last call.
  [[nodiscard]] proto::ClusterUpdate Next(const Catalogue& catalogue,
                                          const cluster::MembershipTable& members);
  // For one member: what has changed since the revision that it knows. All there is when that is 0, or of
  // another life of the manager, or too long ago.
  [[nodiscard]] static proto::ClusterUpdate Since(std::uint64_t known, const Catalogue& catalogue,
                                                  const cluster::MembershipTable& members);

 private:
  std::uint64_t told_;
  std::uint64_t told_workflows_;    // their revision
  std::uint64_t told_keys_;         // their revision
  std::uint64_t told_members_ = 0;  // their version
};

}  // namespace troupe::actors

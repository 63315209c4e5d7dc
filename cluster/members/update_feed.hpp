// UPDATE FEED: what the manager tells the members of functions, workflows, API keys and each other. A change
// is told once, to all of them, as what it changed; so it costs what has changed, not what the cluster has.
// Who missed one finds the gap, or hears of it with a heartbeat, and asks for what changed since what it
// knows. Owned by the cluster manager.
#pragma once

#include <cstdint>
#include <string>

#include "cluster/membership_table.hpp"
#include "cluster/records/catalogue.hpp"
#include "proto/cluster.pb.h"

namespace troupe::cluster {

class UpdateFeed {
 public:
  // No member was told anything yet: a member that joins is told everything.
  explicit UpdateFeed(const Catalogue& catalogue);

  // For everybody: what has changed since the last call.
  [[nodiscard]] proto::ClusterUpdate Next(const Catalogue& catalogue, const MembershipTable& members);
  // For one member: what has changed since the revision that it knows. A snapshot when that is 0, or of another life of the
  // manager, or too long ago; of many functions only its first part (ClusterUpdate.more_after).
  [[nodiscard]] static proto::ClusterUpdate Since(std::uint64_t known, const Catalogue& catalogue,
                                                  const MembershipTable& members);
  // The next part of a snapshot: functions behind the one of this name.
  [[nodiscard]] static proto::ClusterUpdate SnapshotAfter(const std::string& function,
                                                          const Catalogue& catalogue);

 private:
  std::uint64_t told_;
  std::uint64_t told_workflows_;    // their revision
  std::uint64_t told_keys_;         // their revision
  std::uint64_t told_members_ = 0;  // their version
};

}  // namespace troupe::cluster

// Spawns the cluster manager (interface and contract: actors/interfaces/cluster_manager.hpp).
#pragma once

#include <caf/actor_system.hpp>
#include <caf/node_id.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/interfaces/cluster_manager.hpp"
#include "actors/manager/stored_catalogue.hpp"
#include "actors/peers/peer_identities.hpp"
#include "actors/seams/model_repository.hpp"
#include "actors/seams/node_provisioner.hpp"
#include "cluster/settings.hpp"
#include "proto/access.pb.h"
#include "storage/audit_log.hpp"
#include "storage/metadata_store.hpp"

namespace troupe::actors {

// What the cluster decides by, and what the actor carries its effects out with.
struct ManagerOptions : cluster::ClusterSettings {
  Duration adopt_timeout = std::chrono::minutes(6);
  Duration ask_timeout = std::chrono::seconds(3);    // of a node, for an operator
  Duration trial_grace = std::chrono::seconds(30);   // beyond the limit of a trial, for its node to say so
  Duration release_after = std::chrono::minutes(2);  // of a fetched part that was not released
  // Who sends what it is told; null: the simulator, where every sender may ask everything.
  std::shared_ptr<const PeerIdentities> identities;
  NodeProvisioner* provisioner = nullptr;  // outlives the actor; null: nodes come and go by people's hands
  // Which objects of a function's model the store lacks, one text each; asked once, at the start. Empty:
  // none.
  std::function<std::vector<std::string>(const proto::FunctionRecord&)> lacking;
  storage::AuditLog* audit = nullptr;                  // outlives the actor; null: no line is kept of changes
  std::string new_cluster_id;                          // taken by an empty store
  std::function<void(const proto::Event&)> on_event;   // each event as it is kept, for the log; may be empty
  std::function<void(const Recovered&)> on_recovered;  // once, before the actor begins; may be empty
  std::function<std::int64_t()> unix_now;              // nanoseconds since 1970, for records that people read
};

// Reads the store before it returns; DataLoss when a record is damaged. `store` and `repository` outlive the
// actor.
absl::StatusOr<ClusterManagerActor> SpawnClusterManager(caf::actor_system& system, ManagerOptions options,
                                                        storage::MetadataStore& store,
                                                        ModelRepository& repository);

}  // namespace troupe::actors

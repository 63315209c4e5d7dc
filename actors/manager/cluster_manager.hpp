// Spawns the cluster manager (interface and contract: actors/interfaces/cluster_manager.hpp).
#pragma once

#include <caf/actor_system.hpp>
#include <caf/node_id.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/interfaces/cluster_manager.hpp"
#include "actors/peers/peer_identities.hpp"
#include "actors/seams/model_repository.hpp"
#include "actors/seams/node_provisioner.hpp"
#include "cluster/membership_table.hpp"
#include "cluster/provisioning.hpp"
#include "proto/access.pb.h"
#include "storage/audit_log.hpp"
#include "storage/metadata_store.hpp"

namespace troupe::actors {

// What a manager knew when it began, from its store.
struct Recovered {
  std::size_t functions = 0;
  std::size_t workflows = 0;
  std::size_t runs = 0;
  std::size_t unfinished_runs = 0;
};

struct ManagerOptions {
  cluster::MembershipLimits membership;
  std::uint32_t replicas = 2;  // host copies of each model
  Duration tick = std::chrono::milliseconds(50);
  Duration member_lease{};  // a member that has not heard for so long takes nothing new; zero: it goes on
  Duration placement_retry = std::chrono::seconds(2);  // after an adoption that failed
  Duration adopt_timeout = std::chrono::minutes(6);
  Duration ask_timeout = std::chrono::seconds(3);    // of a node, for an operator
  Duration release_after = std::chrono::minutes(2);  // of a fetched part that was not released
  // For a gateway to say that it has a run: after the manager's restart, or once it was told to go on with
  // it.
  Duration run_grace = std::chrono::seconds(2);
  // Between tries to take back from the store what it did not acknowledge.
  Duration take_back_retry = std::chrono::seconds(1);
  // How often objects that no function and no run refers to are removed from the disk, and how long they were
  // not used then: an upload is referred to only when its function is deployed.
  Duration collect_every = std::chrono::minutes(10);
  Duration collect_unused_for = std::chrono::hours(1);
  // Who sends what it is told; null: the simulator, where every sender may ask everything.
  std::shared_ptr<const PeerIdentities> identities;
  NodeProvisioner* provisioner = nullptr;  // outlives the actor; null: nodes come and go by people's hands
  cluster::ProvisioningLimits provisioning;
  // Which objects of a function's model the store lacks, one text each; asked once, at the start. Empty:
  // none.
  std::function<std::vector<std::string>(const proto::FunctionRecord&)> lacking;
  storage::AuditLog* audit = nullptr;  // outlives the actor; null: no line is kept of changes
  proto::Slo default_slo;
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

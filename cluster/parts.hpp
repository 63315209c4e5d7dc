// PARTS: what a cluster's decisions are made of. Each part owns one concept and its tables, and reaches the
// others through their public functions. Private to cluster/: cluster::Cluster (cluster.hpp) is what others
// see.
#pragma once

#include "cluster/admin/admin.hpp"
#include "cluster/admin/answers.hpp"
#include "cluster/admin/audit.hpp"
#include "cluster/admin/deployments.hpp"
#include "cluster/admin/inquiries.hpp"
#include "cluster/admin/key_changes.hpp"
#include "cluster/admin/node_orders.hpp"
#include "cluster/admin/sharing_changes.hpp"
#include "cluster/admin/staged_models.hpp"
#include "cluster/admin/version_changes.hpp"
#include "cluster/admin/workflow_changes.hpp"
#include "cluster/copies/copies.hpp"
#include "cluster/copies/state_moves.hpp"
#include "cluster/copies/state_replicas.hpp"
#include "cluster/members/machines.hpp"
#include "cluster/members/members.hpp"
#include "cluster/outbox.hpp"
#include "cluster/ownership/ownership.hpp"
#include "cluster/ownership/scaling.hpp"
#include "cluster/profiling/profile_removals.hpp"
#include "cluster/profiling/profiling.hpp"
#include "cluster/records/catalogue.hpp"
#include "cluster/records/catalogue_changes.hpp"
#include "cluster/records/commits.hpp"
#include "cluster/records/mutations.hpp"
#include "cluster/records/objects.hpp"
#include "cluster/runs/claims.hpp"
#include "cluster/runs/run_changes.hpp"
#include "cluster/runs/run_owners.hpp"
#include "cluster/runs/runs.hpp"
#include "cluster/runs/unwritten_runs.hpp"
#include "cluster/settings.hpp"
#include "cluster/usage/metered_usage.hpp"

namespace troupe::cluster {

struct Parts {
  Parts(ClusterSettings given, Catalogue stored);
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // One event for all parts that it concerns, in the order that they need.
  void Hear(const Started& event);
  void Pulse();
  // What questions of people are answered from.
  [[nodiscard]] ManagerState State() const;

  const ClusterSettings settings;
  Outbox out;
  // records/
  Catalogue catalogue;
  Commits commits{out};
  Mutations mutations{*this};
  Objects objects{*this};
  // members/
  Members members{*this};
  Machines machines{*this};
  // usage/
  MeteredUsage usage{*this};
  // copies/
  Copies copies{*this};
  StateMoves state_moves{*this};
  StateReplicas state_replicas{*this};
  // runs/
  RunOwners owners;
  RunChanges changes{*this};
  Claims claims{*this};
  Runs runs{*this};
  UnwrittenRuns unwritten{*this};
  // ownership/
  Scaling scaling{*this};
  Ownership ownership{*this};
  // profiling/
  Profiling profiling{*this};
  ProfileRemovals profile_removals{*this};
  // admin/
  Audit audit{*this};
  Admin admin{*this};
  Deployments deployments{*this};
  StagedModels staged{*this};
  VersionChanges versions{*this};
  SharingChanges sharing{*this};
  WorkflowChanges workflows{*this};
  KeyChanges keys{*this};
  NodeOrders orders{*this};
  Inquiries inquiries{*this};
};

}  // namespace troupe::cluster

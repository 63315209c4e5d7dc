// RUNNER HANDLES: the actors that run runs of workflows, by the numbers by which cluster::Cluster knows them.
// Owned by the cluster manager.
#pragma once

#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <caf/node_id.hpp>
#include <cstdint>
#include <map>

#include "actors/interfaces/workflow_run.hpp"
#include "cluster/events.hpp"

namespace troupe::actors {

class RunnerHandles {
 public:
  // Two processes number their actors alike, so a runner has the number of its process too.
  [[nodiscard]] cluster::Runner NumberOf(const caf::actor_addr& address) {
    if (!address) return {};
    return {address.id(), ProcessOf(address.node())};
  }
  // None: no runner of this process was ever numbered.
  [[nodiscard]] cluster::Runner KnownNumberOf(const caf::actor_addr& address) const {
    if (!address) return {};
    const auto process = processes_.find(address.node());
    return process == processes_.end() ? cluster::Runner() : cluster::Runner{address.id(), process->second};
  }
  // From 1. The number is kept when the process is gone: the same process may be back, with its runs.
  [[nodiscard]] std::uint32_t ProcessOf(const caf::node_id& node) {
    return processes_.try_emplace(node, static_cast<std::uint32_t>(processes_.size() + 1)).first->second;
  }
  void Keep(cluster::Runner runner, const WorkflowRunActor& actor) { actors_[runner] = actor; }
  // Empty handle: it is gone.
  [[nodiscard]] WorkflowRunActor Find(cluster::Runner runner) const {
    const auto it = actors_.find(runner);
    return it == actors_.end() ? WorkflowRunActor() : it->second;
  }
  void Remove(cluster::Runner runner) { actors_.erase(runner); }
  void Clear() { actors_.clear(); }

 private:
  std::map<caf::node_id, std::uint32_t> processes_;
  std::map<cluster::Runner, WorkflowRunActor> actors_;
};

}  // namespace troupe::actors

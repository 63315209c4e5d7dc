// CLUSTER VIEW: a member's copy of what the manager publishes (functions, members, workflows, profiles), kept by
// applying ClusterUpdates; where models are, the nodes' grants say. The member that joined owns it: router,
// gateway.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cluster/function_table.hpp"
#include "cluster/profiled_runs.hpp"
#include "proto/cluster.pb.h"

namespace troupe::cluster {

// What an update changed, for the actor that has to act on it.
struct ViewChange {
  bool applied = false;  // false: a gap; ask the member for what changed since the view's revision
  // Gone or unloaded. A function that was removed and deployed again since the last update is in both lists.
  std::vector<proto::FunctionKey> removed{};
  std::vector<proto::FunctionKey> deployed{};  // new or changed
  bool members_changed = false;
};

class ClusterView {
 public:
  // False: what lies between is missing, or the rest of a snapshot.
  [[nodiscard]] bool Follows(const proto::ClusterUpdate& update) const {
    return update.snapshot() ? update.more_after().empty() : update.since() <= revision_;
  }
  // Updates that are older than what is known change nothing and count as applied.
  [[nodiscard]] ViewChange Apply(const proto::ClusterUpdate& update);
  [[nodiscard]] const FunctionTable& functions() const { return functions_; }
  [[nodiscard]] const std::map<std::string, proto::MemberRecord>& members() const { return members_; }
  // By name, then by number of the version.
  using Workflows = std::map<std::string, std::map<std::uint64_t, proto::WorkflowRecord>>;
  [[nodiscard]] const Workflows& workflows() const { return workflows_; }
  // An empty version asks for the newest. Null: there is none.
  [[nodiscard]] const proto::WorkflowRecord* FindWorkflow(const std::string& name,
                                                          const std::string& version) const;
  [[nodiscard]] const ProfiledRuns& profiles() const { return profiles_; }
  // On the kinds of GPU that the cluster's nodes have. A request that is too late for the shortest run is too late anywhere.
  [[nodiscard]] ProfiledRun RunOf(const proto::FunctionRecord& function, std::uint32_t batch) const {
    return profiles_.empty() ? ProfiledRun() : profiles_.RunOn(function, batch, gpu_kinds_);
  }
  // By name of the node.
  [[nodiscard]] std::map<std::string, GpuKinds> KindsOfNodes() const;
  // Every GPU of every node takes an input in parts (proto::Tensor.continues).
  [[nodiscard]] bool take_input_parts() const { return take_input_parts_; }
  [[nodiscard]] std::uint64_t revision() const { return revision_; }

 private:
  FunctionTable functions_;
  std::map<std::string, proto::MemberRecord> members_;
  GpuKinds gpu_kinds_;  // of the members
  bool take_input_parts_ = false;
  Workflows workflows_;
  ProfiledRuns profiles_;
  std::uint64_t revision_ = 0;
};

}  // namespace troupe::cluster

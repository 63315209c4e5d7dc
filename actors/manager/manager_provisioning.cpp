// The cluster manager as customer of a node provisioner: dead nodes are replaced, and the cluster follows its
// load.
#include <google/protobuf/util/json_util.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/manager/cluster_manager_actor.hpp"
#include "gateway/json_text.hpp"

namespace troupe::actors {

using cluster::ProvisionAction;

namespace {

cluster::ProvisionedNode NodeOf(const cluster::Member& member) {
  cluster::ProvisionedNode node{.name = member.record.name(), .state = member.record.state()};
  for (const auto& gpu : member.record.gpus()) node.gpus += gpu.state() != "unfit";
  node.requests = member.load.queued() + member.load.running();
  return node;
}

std::string ActionOf(const ProvisionAction& action) {
  if (action.kind == ProvisionAction::Kind::kAdd) return "add";
  return action.kind == ProvisionAction::Kind::kReplace ? "replace" : "drain";
}

}  // namespace

void ClusterManager::Provision() {
  if (options_.provisioner == nullptr) return;
  std::vector<cluster::ProvisionedNode> nodes;
  for (const auto& [name, member] : members_.members())
    if (member.record.kind() == proto::MEMBER_NODE) {
      nodes.push_back(NodeOf(member));
      nodes.back().stays = placement_.IsHome(name);
    }
  // A machine is given back when its node has finished, and what it alone had is elsewhere.
  for (const auto& node : nodes) {
    if (!leaving_.contains(node.name)) continue;
    const bool drains = node.state == proto::MEMBER_DRAINING;
    if (drains && (node.requests > 0 || placement_.HoldsAlone(node.name))) continue;
    leaving_.erase(node.name);
    const ProvisionAction action{ProvisionAction::Kind::kDrain, node.name};
    if (drains || node.state == proto::MEMBER_LEFT) {
      Order(action);
    } else {
      Provisioned(action, absl::CancelledError("it is not draining any more"));
    }
  }
  for (const auto& action : provisioning_.Decide(nodes, Now(this))) {
    if (action.kind == ProvisionAction::Kind::kDrain) {
      leaving_.insert(action.node);
      BeginDrain(action.node);
    } else {
      Order(action);
    }
  }
}

void ClusterManager::BeginDrain(const std::string& name) {
  const auto node = links_.Node(name);
  if (!node || !members_.SetDraining(name, true).ok()) return;
  proto::DrainNode wish;
  wish.set_name(name);
  wish.set_drain(true);
  Call<proto::DrainReply>(this, calls_, node, options_.ask_timeout, wish,
                          [](const absl::StatusOr<proto::DrainReply>&) {});
}

void ClusterManager::Order(const ProvisionAction& action) {
  proto::ClusterStatusReply status;
  for (const auto& [name, member] : members_.members()) {
    auto& entry = *status.add_members();
    *entry.mutable_member() = member.record;
    *entry.mutable_load() = member.load;
  }
  std::string members;
  static_cast<void>(google::protobuf::util::MessageToJsonString(status, &members));
  std::string node;
  gateway::AppendJsonText(node, action.node);
  auto json =
      absl::StrCat("{\"action\":\"", ActionOf(action), "\",\"node\":", node, ",\"status\":", members, "}\n");
  Tell("manager", "provision-ordered", cluster::Describe(action));
  options_.provisioner->Carry(
      {ActionOf(action), action.node, std::move(json)},
      [callback = continuations_.Make<bool>(this, [this, action](const absl::StatusOr<bool>& taken) {
        Provisioned(action, taken.status());
      })](absl::Status taken) {
        callback(taken.ok() ? absl::StatusOr<bool>(true) : absl::StatusOr<bool>(std::move(taken)));
      });
}

void ClusterManager::Provisioned(const ProvisionAction& action, const absl::Status& status) {
  const auto pause = provisioning_.Ended(action, status, Now(this));
  if (status.ok()) return Tell("manager", "provision-taken-up", cluster::Describe(action));
  Tell("manager", "provision-failed",
       absl::StrCat(cluster::Describe(action), ": ", status.message(), "; tried again in ",
                    FormatDuration(pause)));
}

}  // namespace troupe::actors

#include "cluster/members/machines.hpp"

#include "absl/strings/str_cat.h"
#include "cluster/parts.hpp"

namespace troupe::cluster {

namespace {

ProvisionedNode ProvisionedNodeOf(const Member& member) {
  ProvisionedNode node{.name = member.record.name(), .state = member.record.state()};
  for (const auto& gpu : member.record.gpus()) node.gpus += IsFit(gpu) ? 1 : 0;
  node.requests = member.load.queued() + member.load.running();
  return node;
}

}  // namespace

Machines::Machines(Parts& parts) : parts_(parts), provisioning_(parts.settings.provisioning) {}

std::vector<ProvisionedNode> Machines::Nodes() const {
  std::vector<ProvisionedNode> nodes;
  for (const auto& [name, member] : parts_.members.table().members()) {
    if (member.record.kind() != proto::MEMBER_NODE) continue;
    nodes.push_back(ProvisionedNodeOf(member));
    nodes.back().stays = parts_.copies.table().IsHome(name);
  }
  return nodes;
}

void Machines::Provision() {
  if (!parts_.settings.provisions) return;
  const auto nodes = Nodes();
  GiveBack(nodes);
  for (const auto& action : provisioning_.Decide(nodes, parts_.out.now())) {
    if (action.kind == ProvisionAction::Kind::kDrain) {
      leaving_.insert(action.node);
      parts_.members.BeginDrain(action.node);
    } else {
      Order(action);
    }
  }
}

// A machine is given back when its node has finished, and what it alone had is elsewhere.
void Machines::GiveBack(const std::vector<ProvisionedNode>& nodes) {
  for (const auto& node : nodes) {
    if (!leaving_.contains(node.name)) continue;
    const bool drains = node.state == proto::MEMBER_DRAINING;
    if (drains && (node.requests > 0 || parts_.copies.table().copies().HoldsAlone(node.name))) continue;
    leaving_.erase(node.name);
    const ProvisionAction action{ProvisionAction::Kind::kDrain, node.name};
    if (drains || node.state == proto::MEMBER_LEFT) {
      Order(action);
    } else {
      Ended(action, absl::CancelledError("it is not draining any more"));
    }
  }
}

void Machines::Order(const ProvisionAction& action) {
  proto::ClusterStatusReply status;
  for (const auto& [name, member] : parts_.members.table().members()) {
    auto& entry = *status.add_members();
    *entry.mutable_member() = member.record;
    *entry.mutable_load() = member.load;
  }
  parts_.out.Tell("manager", "provision-ordered", Describe(action));
  parts_.out.Add(OrderMachine{action, std::move(status)});
}

void Machines::Ended(const ProvisionAction& action, const absl::Status& status) {
  const auto pause = provisioning_.Ended(action, status, parts_.out.now());
  if (status.ok()) return parts_.out.Tell("manager", "provision-taken-up", Describe(action));
  parts_.out.Tell(
      "manager", "provision-failed",
      absl::StrCat(Describe(action), ": ", status.message(), "; tried again in ", FormatDuration(pause)));
}

}  // namespace troupe::cluster

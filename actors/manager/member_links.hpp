// The actors of the members that joined. Owned by the cluster manager.
#pragma once

#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <map>
#include <string>

#include "actors/interfaces/fault_target.hpp"
#include "actors/interfaces/front.hpp"
#include "actors/interfaces/node_controller.hpp"
#include "actors/interfaces/router.hpp"

namespace troupe::actors {

class MemberLinks {
 public:
  void AddNode(const std::string& name, const NodeControllerActor& node) { nodes_[name] = node; }
  // `front`: empty for a gateway that goes on with no lost runs.
  void AddGateway(const std::string& name, const RouterActor& router, const FrontActor& front = {}) {
    gateways_[name] = router;
    fronts_.erase(name);
    if (front) fronts_[name] = front;
  }
  // Its session with us, which does faults to it.
  void AddFaultTarget(const std::string& name, const FaultTargetActor& member) {
    fault_targets_[name] = member;
  }
  // Empty handle: not connected.
  [[nodiscard]] FaultTargetActor FaultTarget(const std::string& name) const {
    const auto it = fault_targets_.find(name);
    return it == fault_targets_.end() ? FaultTargetActor() : it->second;
  }
  void Forget(const std::string& name) {
    nodes_.erase(name);
    gateways_.erase(name);
    fault_targets_.erase(name);
    fronts_.erase(name);
  }
  // The member behind a DOWN, forgotten; empty when it is none, or has joined again with another actor since.
  std::string Remove(const caf::actor_addr& address) {
    auto name = RemoveFrom(nodes_, address);
    if (name.empty()) name = RemoveFrom(gateways_, address);
    fault_targets_.erase(name);
    fronts_.erase(name);
    return name;
  }
  // Empty handle: not connected.
  [[nodiscard]] NodeControllerActor Node(const std::string& name) const {
    const auto it = nodes_.find(name);
    return it == nodes_.end() ? NodeControllerActor() : it->second;
  }
  [[nodiscard]] const std::map<std::string, NodeControllerActor>& nodes() const { return nodes_; }
  [[nodiscard]] const std::map<std::string, RouterActor>& gateways() const { return gateways_; }
  [[nodiscard]] const std::map<std::string, FrontActor>& fronts() const { return fronts_; }
  void Clear() {
    nodes_.clear();
    gateways_.clear();
    fault_targets_.clear();
    fronts_.clear();
  }

 private:
  template <class Handle>
  static std::string RemoveFrom(std::map<std::string, Handle>& links, const caf::actor_addr& address) {
    for (auto it = links.begin(); it != links.end(); ++it) {
      if (caf::actor_cast<caf::actor_addr>(it->second) != address) continue;
      auto name = it->first;
      links.erase(it);
      return name;
    }
    return "";
  }

  std::map<std::string, NodeControllerActor> nodes_;
  std::map<std::string, RouterActor> gateways_;
  std::map<std::string, FaultTargetActor> fault_targets_;
  std::map<std::string, FrontActor> fronts_;
};

}  // namespace troupe::actors

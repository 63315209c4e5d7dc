// MEMBER LINKS: the actors of the members that joined. Owned by the cluster manager.
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

// The actors of one member: of a node, or of a gateway.
struct MemberHandles {
  NodeControllerActor node{};
  RouterActor router{};
  FrontActor front{};         // empty for a gateway that cannot go on with runs
  FaultTargetActor target{};  // its session with us, which does faults to it
};

class MemberLinks {
 public:
  struct Gone {
    std::string name{};
    bool gateway = false;
  };

  void Add(const std::string& name, const MemberHandles& member) {
    fault_targets_[name] = member.target;
    if (member.node) {
      nodes_[name] = member.node;
      return;
    }
    gateways_[name] = member.router;
    fronts_.erase(name);
    if (member.front) fronts_[name] = member.front;
  }
  // Empty handle: not connected.
  [[nodiscard]] FaultTargetActor FaultTarget(const std::string& name) const {
    const auto it = fault_targets_.find(name);
    return it == fault_targets_.end() ? FaultTargetActor() : it->second;
  }
  // The process of the member, by its session: its other actors may be asked through actors of this process. None: not connected.
  [[nodiscard]] caf::node_id ProcessOf(const std::string& name) const {
    const auto session = FaultTarget(name);
    return session ? session.node() : caf::node_id();
  }
  void Forget(const std::string& name) {
    nodes_.erase(name);
    gateways_.erase(name);
    fault_targets_.erase(name);
    fronts_.erase(name);
  }
  // The member behind a DOWN, forgotten; without a name when it is none, or has joined again with another
  // actor since.
  Gone Remove(const caf::actor_addr& address) {
    Gone gone{RemoveFrom(nodes_, address)};
    if (gone.name.empty()) gone = {RemoveFrom(gateways_, address), true};
    fault_targets_.erase(gone.name);
    fronts_.erase(gone.name);
    return gone;
  }
  // Empty handle: not connected.
  [[nodiscard]] NodeControllerActor Node(const std::string& name) const {
    const auto it = nodes_.find(name);
    return it == nodes_.end() ? NodeControllerActor() : it->second;
  }
  [[nodiscard]] const std::map<std::string, NodeControllerActor>& nodes() const { return nodes_; }
  [[nodiscard]] const std::map<std::string, RouterActor>& gateways() const { return gateways_; }
  // Empty handle: not connected.
  [[nodiscard]] FrontActor Front(const std::string& name) const {
    const auto it = fronts_.find(name);
    return it == fronts_.end() ? FrontActor() : it->second;
  }
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

#include "actors/gateway/known_nodes.hpp"

namespace troupe::actors {

std::vector<std::string> KnownNodes::Update(const cluster::ClusterView& view,
                                            const std::set<std::string>& interface,
                                            const PeerWatcherActor& self) {
  std::map<std::string, std::string> wanted;  // address -> name
  for (const auto& [name, member] : view.members()) {
    const bool gone = member.state() == proto::MEMBER_DEAD || member.state() == proto::MEMBER_LEFT;
    if (member.kind() == proto::MEMBER_NODE && !gone) wanted[member.address()] = name;
  }
  std::vector<std::string> forgotten;
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    const auto same = wanted.find(it->first);
    const bool awaits_manager = it->second.controller && !view.members().contains(it->second.name);
    if (same != wanted.end() ? same->second == it->second.name : awaits_manager) {
      ++it;
      continue;
    }
    directory_.Forget(it->first, self);
    forgotten.push_back(it->second.name);
    it = nodes_.erase(it);
  }
  for (const auto& [address, name] : wanted)
    if (nodes_.try_emplace(address, KnownNode{name, {}}).second) directory_.Watch(address, interface, self);
  return forgotten;
}

KnownNode* KnownNodes::At(const std::string& address) {
  const auto it = nodes_.find(address);
  return it == nodes_.end() ? nullptr : &it->second;
}

NodeControllerActor KnownNodes::ControllerOf(const std::string& name) const {
  for (const auto& [address, node] : nodes_)
    if (node.name == name) return node.controller;
  return {};
}

}  // namespace troupe::actors

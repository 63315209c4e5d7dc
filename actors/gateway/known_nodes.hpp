// KNOWN NODES: the nodes that a router has heard of, and its connections to their controllers. Owned by the router, in
// whose thread everything happens.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "actors/interfaces/node_controller.hpp"
#include "actors/seams/peer_directory.hpp"
#include "cluster/cluster_view.hpp"

namespace troupe::actors {

struct KnownNode {
  std::string name;
  NodeControllerActor controller;  // null: not connected now
};

class KnownNodes {
 public:
  // The directory outlives it.
  explicit KnownNodes(PeerDirectory& directory) : directory_(directory) {}

  // Watches the nodes of the view, for `self`. Gives the names of the nodes that it forgets, because the manager says
  // that they are gone. A node that a restarted manager does not know yet stays, while we are connected with it.
  [[nodiscard]] std::vector<std::string> Update(const cluster::ClusterView& view,
                                                const std::set<std::string>& interface,
                                                const PeerWatcherActor& self);
  // Null: it is not one of them.
  [[nodiscard]] KnownNode* At(const std::string& address);
  // Null: it is not connected.
  [[nodiscard]] NodeControllerActor ControllerOf(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, KnownNode>& all() const { return nodes_; }  // by address
  void Clear() { nodes_.clear(); }

 private:
  PeerDirectory& directory_;
  std::map<std::string, KnownNode> nodes_;
};

}  // namespace troupe::actors

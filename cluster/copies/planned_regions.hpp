// PLANNED REGIONS: how the newest plan of copies fills the host regions of the nodes.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "cluster/copies/digest_key.hpp"
#include "cluster/copies/node_numbers.hpp"
#include "cluster/placement.hpp"

namespace troupe::cluster {

class PlannedRegions {
 public:
  // Replaces the nodes; `nodes` are in the order of their names. Calls touch(digest) with the models whose places may change: the
  // models of a node that is gone, has changed or is named in `anew`, the models that lack copies, and the models that rank a
  // node that came or has changed above one of theirs. Returns false when the nodes are the same as before.
  template <class Touch>
  bool SetNodes(std::vector<PlacementNode> nodes, const std::set<std::string>& anew, const Touch& touch) {
    if (nodes == nodes_ && anew.empty()) return false;
    std::vector<bool> left(numbers_.size());
    const auto leaves = [&](const std::string& name) {
      if (const auto number = numbers_.Find(name)) left[*number] = true;
    };
    std::ranges::for_each(anew, leaves);
    std::vector<PlacementNode> came;
    for (const auto& node : nodes_)
      if (!Has(nodes, node)) leaves(node.name);
    for (const auto& node : nodes)
      if (!Has(nodes_, node) || anew.contains(node.name)) came.push_back(node);
    nodes_ = std::move(nodes);
    for (const auto& [digest, place] : planned_)
      if (MayMove(place, left, came)) touch(digest);
    return true;
  }
  void Clear() {
    planned_.clear();
    used_.clear();
  }
  // `wanted`: the copies that it is to have, when there are nodes for them.
  void Add(const PlacementModel& model, const std::vector<std::string>& nodes, std::uint32_t wanted) {
    const auto key = DigestKey::Of(model.digest);
    if (!key) return;
    const PlacementRank rank(model.digest);
    Place place{model.host_bytes, model.device_bytes, {}, rank};
    place.wants_more = nodes.size() < wanted;
    for (const auto& name : nodes) {
      place.nodes.push_back(numbers_.Of(name));
      used_[name] += model.host_bytes;
      if (const auto* node = Find(name)) place.lowest = std::min(place.lowest, rank.Of(*node));
    }
    planned_.insert_or_assign(*key, std::move(place));
  }
  void Remove(const std::string& digest) {
    const auto key = DigestKey::Of(digest);
    if (!key) return;
    const auto before = planned_.extract(*key);
    if (before.empty()) return;
    for (const auto node : before.mapped().nodes) used_[numbers_.NameOf(node)] -= before.mapped().bytes;
  }
  // Whether there is room for `plan` of these models, which are not planned now, beside the others, which have room.
  [[nodiscard]] bool HasRoom(const std::vector<PlacementModel>& models, const PlacementPlan& plan) const {
    std::map<std::string, Bytes> added;
    for (const auto& model : models) {
      const auto placed = plan.placements.find(model.digest);
      if (placed == plan.placements.end()) continue;
      for (const auto& node : placed->second) added[node] += model.host_bytes;
    }
    return std::ranges::all_of(added, [this](const auto& entry) {
      const auto used = used_.find(entry.first);
      return entry.second + (used == used_.end() ? Bytes() : used->second) <= RegionOf(entry.first);
    });
  }
  [[nodiscard]] const std::vector<PlacementNode>& nodes() const { return nodes_; }
  // On average; 1 when there is no node.
  [[nodiscard]] double GpusOfANode() const {
    if (nodes_.empty()) return 1;
    const auto gpus = std::accumulate(nodes_.begin(), nodes_.end(), 0.0,
                                      [](double sum, const auto& node) { return sum + node.gpus; });
    return gpus / static_cast<double>(nodes_.size());
  }
  [[nodiscard]] PlacementMap Planned() const {
    PlacementMap map;
    for (const auto& [digest, place] : planned_) map[digest.Text()] = numbers_.NamesOf(place.nodes);
    return map;
  }

 private:
  struct Place {
    Bytes bytes{};
    Bytes device_bytes{};
    NodesOfModel nodes{};
    PlacementRank rank;
    double lowest = std::numeric_limits<double>::infinity();  // of its nodes
    bool wants_more = false;
  };
  [[nodiscard]] static const PlacementNode* FindIn(const std::vector<PlacementNode>& nodes,
                                                   const std::string& name) {
    const auto node = std::ranges::lower_bound(nodes, name, std::less<>(), &PlacementNode::name);
    return node == nodes.end() || node->name != name ? nullptr : &*node;
  }
  [[nodiscard]] static bool Has(const std::vector<PlacementNode>& nodes, const PlacementNode& wanted) {
    const auto* node = FindIn(nodes, wanted.name);
    return node != nullptr && *node == wanted;
  }
  [[nodiscard]] const PlacementNode* Find(const std::string& name) const { return FindIn(nodes_, name); }
  [[nodiscard]] Bytes RegionOf(const std::string& name) const {
    const auto* node = Find(name);
    return node == nullptr ? Bytes() : node->region;
  }
  // `left`: by number of the node.
  [[nodiscard]] static bool MayMove(const Place& place, const std::vector<bool>& left,
                                    const std::vector<PlacementNode>& came) {
    if (place.wants_more) return true;
    if (std::ranges::any_of(place.nodes, [&](NodeNumber node) { return left[node]; })) return true;
    return std::ranges::any_of(came, [&](const auto& node) {
      return place.bytes <= node.region && place.device_bytes <= node.gpu_memory &&
             place.rank.Of(node) >= place.lowest;
    });
  }

  std::vector<PlacementNode> nodes_;
  NodeNumbers numbers_;  // of nodes that were planned with
  std::map<DigestKey, Place> planned_;
  std::map<std::string, Bytes> used_;  // of each node's region
};

}  // namespace troupe::cluster

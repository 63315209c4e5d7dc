// PLANNED REGIONS: how the newest plan of copies fills the host regions of the nodes.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "cluster/placement.hpp"

namespace troupe::cluster {

class PlannedRegions {
 public:
  // Whether they are other nodes than before, or have changed.
  bool SetNodes(std::vector<PlacementNode> nodes) {
    const bool changed = nodes != nodes_;
    nodes_ = std::move(nodes);
    return changed;
  }
  void Clear() {
    planned_.clear();
    used_.clear();
  }
  void Add(const PlacementModel& model, const std::vector<std::string>& nodes) {
    planned_[model.digest] = {model.host_bytes, nodes};
    for (const auto& node : nodes) used_[node] += model.host_bytes;
  }
  void Remove(const std::string& digest) {
    const auto before = planned_.extract(digest);
    if (before.empty()) return;
    for (const auto& node : before.mapped().nodes) used_[node] -= before.mapped().bytes;
  }
  // Whether there is room for `plan` of these models, which are not planned now, beside the others.
  [[nodiscard]] bool HasRoom(const std::vector<PlacementModel>& models, const PlacementPlan& plan) const {
    auto used = used_;
    for (const auto& model : models) {
      const auto placed = plan.placements.find(model.digest);
      if (placed == plan.placements.end()) continue;
      for (const auto& node : placed->second) used[node] += model.host_bytes;
    }
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [&](const auto& node) { return used[node.name] <= node.region; });
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
    for (const auto& [digest, place] : planned_) map[digest] = place.nodes;
    return map;
  }

 private:
  struct Place {
    Bytes bytes{};
    std::vector<std::string> nodes{};
  };

  std::vector<PlacementNode> nodes_;
  std::map<std::string, Place> planned_;  // by model digest
  std::map<std::string, Bytes> used_;     // of each node's region
};

}  // namespace troupe::cluster

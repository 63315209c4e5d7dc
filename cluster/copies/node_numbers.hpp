// NODE NUMBERS: small numbers for the names of nodes, for tables that name some nodes for each of very many models. A name
// keeps its number as long as the table lives, so there are as many as nodes that ever joined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace troupe::cluster {

using NodeNumber = std::uint32_t;
// Of one model, in the order of their names. As many as most models have are in the row itself.
using NodesOfModel = absl::InlinedVector<NodeNumber, 4>;

class NodeNumbers {
 public:
  // Gives the name a number when it has none.
  NodeNumber Of(const std::string& name) {
    const auto [it, added] = numbers_.try_emplace(name, static_cast<NodeNumber>(names_.size()));
    if (added) names_.push_back(name);
    return it->second;
  }
  // Absent: the name has no number.
  [[nodiscard]] std::optional<NodeNumber> Find(const std::string& name) const {
    const auto it = numbers_.find(name);
    return it == numbers_.end() ? std::nullopt : std::optional(it->second);
  }
  [[nodiscard]] const std::string& NameOf(NodeNumber number) const { return names_[number]; }
  [[nodiscard]] std::size_t size() const { return names_.size(); }

  // False: it is there already.
  bool Insert(NodesOfModel& nodes, NodeNumber node) const {
    const auto at = std::ranges::lower_bound(
        nodes, NameOf(node), {}, [this](NodeNumber one) -> const auto& { return NameOf(one); });
    if (at != nodes.end() && *at == node) return false;
    nodes.insert(at, node);
    return true;
  }
  [[nodiscard]] std::vector<std::string> NamesOf(const NodesOfModel& nodes) const {
    std::vector<std::string> names;
    names.reserve(nodes.size());
    for (const NodeNumber node : nodes) names.push_back(NameOf(node));
    return names;
  }

 private:
  std::map<std::string, NodeNumber> numbers_;
  std::vector<std::string> names_;  // by number
};

}  // namespace troupe::cluster

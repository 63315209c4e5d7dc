// HOST COPIES: which node holds a host copy of which model, which copies nodes were asked to make, and when a copy
// that failed may be asked for again.
//
//   a copy:  absent -> asked -> held
//            held -> absent      the node has disowned it
//            asked -> absent     it failed (and is asked for again after `retry`), or the node has disowned it
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "cluster/copies/digest_key.hpp"
#include "cluster/copies/node_numbers.hpp"
#include "cluster/placement.hpp"

namespace troupe::cluster {

class HostCopies {
 public:
  explicit HostCopies(Duration retry) : retry_(retry) {}

  // A node joined and says what it holds.
  void NodeJoined(const std::string& node, const std::vector<std::string>& adopted);
  void NodeGone(const std::string& node);
  void Adopted(const std::string& digest, const std::string& node);
  // When the copy may be asked for again.
  Time Failed(const std::string& digest, const std::string& node, Time now);
  void Disowned(const std::string& digest, const std::string& node);
  // False: the node is asked already, or it failed too short a time ago.
  bool Ask(const std::string& digest, const std::string& node, Time now);
  // Adds the models with a copy that may be asked for again to `due`. Returns when the next copy may be asked for
  // again; Time::max() when no other copy waits.
  Time AddDue(Time now, std::set<std::string>& due) const;

  // Of all models, and of one of them; nothing of a model that no node holds.
  [[nodiscard]] PlacementMap Held() const;
  void AddHeld(const std::string& digest, PlacementMap& held) const;
  [[nodiscard]] bool IsHeld(const std::string& digest) const { return NodesOf(digest) != nullptr; }
  [[nodiscard]] bool IsHeld(const DigestKey& model) const { return held_.contains(model); }
  // Grows with each change of what is held.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  [[nodiscard]] std::vector<std::string> HoldersOf(const std::string& digest) const;
  // Whether some model has its only copy there.
  [[nodiscard]] bool HoldsAlone(const std::string& node) const;
  [[nodiscard]] bool IsAsked(const std::string& digest, const std::string& node) const {
    return asked_.contains({digest, node});
  }
  [[nodiscard]] bool BeingAdopted(const std::string& digest) const;
  // The node could not adopt it a moment ago.
  [[nodiscard]] bool MustWait(const std::string& digest, const std::string& node, Time now) const;

 private:
  using Copy = std::pair<std::string, std::string>;  // digest, node

  // Null: no node holds it.
  [[nodiscard]] const NodesOfModel* NodesOf(const std::string& digest) const;
  void Hold(const std::string& digest, NodeNumber node);

  const Duration retry_;
  NodeNumbers nodes_;
  std::vector<std::uint64_t> held_by_;  // by number of the node: how many models it holds
  std::map<DigestKey, NodesOfModel> held_;
  std::uint64_t changes_ = 0;
  std::set<Copy> asked_;
  std::map<Copy, Time> not_before_;
};

}  // namespace troupe::cluster

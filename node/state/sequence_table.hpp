// SEQUENCE TABLE: the sequences of this node's functions that have a state, or a request, in the order of their last use.
//
//   warm: its state is in memory here, or about to be, under a number; it may be used
//   cold: its state is on disk only
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/units.hpp"
#include "node/names.hpp"

namespace troupe::node {

struct Sequence {
  StateNumber owner{};  // the state of its function
  std::string id{};
  StateNumber key{};         // of a warm one; none: it is cold
  bool begun = false;        // there is a state to go on from
  bool has_room = false;     // of this host's memory, for its image
  std::size_t requests = 0;  // that are at this node
  Time used{};               // when a request of it came or ended last
};

class SequenceTable {
 public:
  // Null: there is none. A sequence stays where it is until it is removed.
  [[nodiscard]] Sequence* Find(const StateNumber& owner, const std::string& id);
  [[nodiscard]] Sequence* ByKey(const StateNumber& key);
  // A cold one, used now.
  Sequence& Add(const StateNumber& owner, const std::string& id, Time now);
  void Remove(Sequence& sequence);
  void Use(Sequence& sequence, Time now);
  void Warm(Sequence& sequence, StateNumber key);
  void Cool(Sequence& sequence);

  [[nodiscard]] std::size_t size() const { return places_.size(); }
  [[nodiscard]] std::size_t CountOf(const StateNumber& owner) const;
  // In the order of their use, the longest unused first.
  [[nodiscard]] std::list<Sequence>& warm() { return warm_; }
  [[nodiscard]] const std::list<Sequence>& warm() const { return warm_; }
  [[nodiscard]] std::list<Sequence>& cold() { return cold_; }
  [[nodiscard]] std::vector<Sequence*> Of(const StateNumber& owner);

 private:
  using Place = std::list<Sequence>::iterator;
  [[nodiscard]] Place PlaceOf(const Sequence& sequence) const {
    return places_.at({sequence.owner, sequence.id});
  }

  std::list<Sequence> warm_;
  std::list<Sequence> cold_;
  absl::flat_hash_map<std::pair<StateNumber, std::string>, Place> places_;
  absl::flat_hash_map<StateNumber, Place> by_key_;           // of warm ones
  absl::flat_hash_map<StateNumber, std::size_t> of_owners_;  // how many
};

}  // namespace troupe::node

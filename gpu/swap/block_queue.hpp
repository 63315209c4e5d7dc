// Whose block goes next over a link.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "gpu/swap/swap_policy.hpp"

namespace troupe::gpu {

// The transfers that have blocks to send: the most urgent first, equals in turn. Pure.
class BlockQueue {
 public:
  using Id = std::uint64_t;
  void Add(Id id, Urgency urgency);
  // Not there (any more): nothing happens.
  void Remove(Id id);
  // Makes it more urgent, never less.
  void Raise(Id id, Urgency urgency);
  // Whose block goes now; it goes behind its equals.
  [[nodiscard]] std::optional<Id> Next();
  [[nodiscard]] std::optional<Urgency> MostUrgent() const;
  [[nodiscard]] std::size_t size() const { return places_.size(); }

 private:
  struct Place {
    Urgency urgency;
    std::uint64_t turn;
  };
  using Key = std::tuple<Urgency, std::uint64_t, Id>;
  std::map<Id, Place> places_;
  std::set<Key> order_;
  std::uint64_t turns_ = 0;
};

}  // namespace troupe::gpu

// PAUSES: what is offered again after a moment. A request that every holder of its model has refused leaves the queue until then. A
// request that some node has refused stays in the queue, and so do all requests when a node takes nothing: they need a look then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "base/units.hpp"

namespace troupe::cluster {

class Pauses {
 public:
  void Add(Time until, std::uint64_t sequence) { requests_.emplace(until, sequence); }
  void Remove(Time until, std::uint64_t sequence) { requests_.erase({until, sequence}); }
  void AddRefusal(Time until) { refusals_.insert(until); }
  // A request whose pause is over; nothing when there is none left.
  [[nodiscard]] std::optional<std::uint64_t> TakeDue(Time now) {
    if (requests_.empty() || requests_.begin()->first > now) return std::nullopt;
    const auto sequence = requests_.begin()->second;
    requests_.erase(requests_.begin());
    return sequence;
  }
  void ForgetRefusalsDue(Time now) { refusals_.erase(refusals_.begin(), refusals_.upper_bound(now)); }
  // `queued`: requests wait for the nodes.
  [[nodiscard]] Time NextDue(bool queued) const {
    Time due = requests_.empty() ? Time::max() : requests_.begin()->first;
    if (queued && !refusals_.empty()) due = std::min(due, *refusals_.begin());
    return due;
  }
  [[nodiscard]] std::size_t requests() const { return requests_.size(); }

 private:
  std::set<std::pair<Time, std::uint64_t>> requests_;
  std::set<Time> refusals_;  // when they end
};

}  // namespace troupe::cluster

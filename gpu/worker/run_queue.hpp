// Runs in the order in which they are served.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "gpu/swap/swap_policy.hpp"

namespace troupe::gpu {

// A run is known by the sequence of its order. Smaller priorities go first, equal ones by urgency
// (gpu/worker/launch_order.hpp), then in the order of their arrival. Holds the waiting runs; the same class
// orders the runs that are staged and ready to compute. Pure.
class RunQueue {
 public:
  // False when the sequence is in the queue already. `expires`: Time::max() for never.
  bool Add(std::uint64_t sequence, std::uint32_t priority, Urgency urgency, Time expires);
  // False when it is not there (any more).
  bool Remove(std::uint64_t sequence);
  [[nodiscard]] bool Contains(std::uint64_t sequence) const { return places_.contains(sequence); }
  using Ready = std::function<bool(std::uint64_t)>;
  // The first that `ready` accepts; stays in the queue.
  [[nodiscard]] std::optional<std::uint64_t> First(Time now, const Ready& ready) const;
  // Takes out and returns all that have expired, in order.
  [[nodiscard]] std::vector<std::uint64_t> TakeExpired(Time now);
  // When the next one expires; Time::max(): never.
  [[nodiscard]] Time NextExpiry() const;
  // The more urgent ones first.
  [[nodiscard]] std::vector<std::uint64_t> All() const;
  [[nodiscard]] std::size_t size() const { return places_.size(); }

 private:
  struct Rank {
    std::uint32_t priority;
    Urgency urgency;
    std::uint64_t arrival;
    auto operator<=>(const Rank&) const = default;
  };
  struct Place {
    Rank rank;
    Time expires;
  };
  std::map<std::uint64_t, Place> places_;  // by sequence
  std::map<Rank, std::uint64_t> order_;
  std::set<std::pair<Time, std::uint64_t>> expiries_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace troupe::gpu

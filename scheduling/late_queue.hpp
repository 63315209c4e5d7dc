// LATE QUEUE: the waiting requests, ordered by when each becomes late, for a policy in which late requests
// yield: a request that can no longer meet its deadline goes behind all of its priority that still can
// (scheduling/ordering_policy.hpp). Under overload plain earliest deadline first serves requests that are lost
// already, and becomes late for all. A node's scheduler or a router's request table owns the queue, tells it
// which requests wait, and changes their keys; no locks.
//
//   a waiting request:  in time -> late -> promoted (before all that are in time)
//
// One of every `turn` requests that leave the queue is the late request with the earliest deadline. So a late
// request waits behind at most turn x (late ones before it + 1) others, whatever arrives; under light load it
// leaves at once. The queue is never scanned: each request becomes late once.
//
// With error budgets in its rules, a request of a function whose budget is spent is late from its arrival on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/units.hpp"
#include "scheduling/error_budgets.hpp"
#include "scheduling/ordering_policy.hpp"

namespace troupe {

// `Id` names a request to its owner, `Function` a function; keys are unique in the queue.
template <class Id, class Function>
class LateQueue {
 public:
  explicit LateQueue(const LateRules& rules) : rules_(rules) {}

  // A request begins or ceases to wait under this key. `latest`: the time at which it has to begin to meet
  // its deadline, the same in both calls; Time::max() without a deadline, or after its promotion.
  void Add(const OrderingKey& key, Time latest, const Id& id) {
    if (IsLate(key)) {
      late_.emplace(key, id);
    } else if (latest != Time::max()) {
      in_time_.emplace(std::pair(latest, key.sequence), id);
    }
  }
  void Remove(const OrderingKey& key, Time latest) {
    if (IsLate(key)) {
      late_.erase(key);
    } else if (latest != Time::max()) {
      // By place: by key the tree looks for it three times.
      if (const auto it = in_time_.find({latest, key.sequence}); it != in_time_.end()) in_time_.erase(it);
    }
  }

  // The first request that was in time and is late by now. The caller gives it a LateKey, and asks again.
  [[nodiscard]] std::optional<Id> NextLate(Time now) const {
    if (in_time_.empty() || in_time_.begin()->first.first >= now) return std::nullopt;
    return in_time_.begin()->second;
  }
  // A request has left the queue to be served. Answers the late request that this promotes, if any: the
  // caller gives it back its key, and no `latest`.
  [[nodiscard]] std::optional<Id> Gone(const OrderingKey& key) {
    if (late_.empty() || IsLate(key) || ++gone_ < rules_.turn) return std::nullopt;
    gone_ = 0;
    return late_.begin()->second;
  }
  [[nodiscard]] std::size_t late() const { return late_.size(); }

  // A request arrives with a deadline, and had better have a LateKey at once.
  [[nodiscard]] bool Yields(const Function& function) const {
    return rules_.budgets && budgets_.IsSpent(function);
  }
  // Counts requests that had a deadline, however they ended.
  void Ended(const Function& function, double percentile, bool in_time) {
    if (rules_.budgets) budgets_.Ended(function, percentile, in_time);
  }

 private:
  LateRules rules_;
  absl::btree_map<std::pair<Time, std::uint64_t>, Id> in_time_;  // such as have a deadline
  absl::btree_map<OrderingKey, Id> late_;
  ErrorBudgets<Function> budgets_;
  std::uint32_t gone_ = 0;  // others, since the last turn
};

}  // namespace troupe

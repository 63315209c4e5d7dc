// LATE QUEUE: the waiting requests by when they are late, for an order in which the late ones yield: what can
// no longer meet its deadline goes behind all of its priority that still can (base/ordering_policy.hpp).
// Where more is asked for than can be served, plain earliest deadline first serves what is lost already, and
// is late for everything. Owned by whoever owns a queue (a node's scheduler, a router's request table), which tells
// what waits and changes the keys; no locks.
//
//   a waiting request:  in time -> late -> promoted (back among those in time, and late for all of
//   them)
//
// Of those that go, one in `turn` is the late one of the earliest deadline, so that late ones wait behind no
// more than turn x (late ones before them + 1) others, however much comes; with less to do they go at once.
// Nothing is scanned: each request becomes late once.
//
// By its rules a function's error budget counts as well: where it is spent, a request goes with the late
// ones from its arrival on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/error_budgets.hpp"
#include "base/ordering_policy.hpp"
#include "base/units.hpp"

namespace troupe {

// `Id` names a request to its owner; keys are unique in the queue.
template <class Id>
class LateQueue {
 public:
  explicit LateQueue(const LateRules& rules) : rules_(rules) {}

  // A request waits by this key, or no longer. `latest`: when it has to begin to meet its deadline, the same
  // both times; Time::max(): it has none, or its turn has come.
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

  // The first of those that are late by now and were in time: give it a LateKey, and ask again.
  [[nodiscard]] std::optional<Id> NextLate(Time now) const {
    if (in_time_.empty() || in_time_.begin()->first.first >= now) return std::nullopt;
    return in_time_.begin()->second;
  }
  // A request has left the queue to be served. Answers the late one whose turn that makes it: give it its key
  // back, and no `latest`.
  [[nodiscard]] std::optional<Id> Gone(const OrderingKey& key) {
    if (late_.empty() || IsLate(key) || ++gone_ < rules_.turn) return std::nullopt;
    gone_ = 0;
    return late_.begin()->second;
  }
  [[nodiscard]] std::size_t late() const { return late_.size(); }

  // A request arrives with a deadline, and had better have a LateKey at once.
  [[nodiscard]] bool Yields(const std::string& function) const {
    return rules_.budgets && budgets_.IsSpent(function);
  }
  // Of those that had a deadline, however they ended.
  void Ended(const std::string& function, double percentile, bool in_time) {
    if (rules_.budgets) budgets_.Ended(function, percentile, in_time);
  }

 private:
  LateRules rules_;
  absl::btree_map<std::pair<Time, std::uint64_t>, Id> in_time_;  // such as have a deadline
  absl::btree_map<OrderingKey, Id> late_;
  ErrorBudgets budgets_;
  std::uint32_t gone_ = 0;  // others, since the last turn
};

}  // namespace troupe

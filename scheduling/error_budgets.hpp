// ERROR BUDGETS: which functions have had so many late requests that they can no longer meet their SLO. An
// SLO asks for a share of the requests only: of a hundred requests whose 98th percentile has to be in time,
// two may be late. Under overload every function is late for some requests, and all of them miss their SLO;
// when the functions that miss it anyhow yield, the others meet theirs. (Torpor's low group, 002, 5.2, is the
// same thought; here a function must be far beyond its budget.) The queue's owner, a node's scheduler or a
// router's request table, owns it; no locks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "scheduling/slo_count.hpp"

namespace troupe {

template <class Key>  // names a function to its owner
class ErrorBudgets {
 public:
  // A request of a function with a deadline ended; cancelled and refused requests do not count. `percentile`
  // of its SLO in (0, 100]; 0: the default (scheduling/slo_count.hpp).
  void Ended(const Key& function, double percentile, bool in_time) {
    if (functions_.size() >= kMostFunctions && !functions_.contains(function)) functions_.clear();
    functions_[function].Add(percentile, in_time);
  }
  // Half as many again as may be late were late, and kFewLate more: not of a function that was late a few
  // times since it began.
  [[nodiscard]] bool IsSpent(const Key& function) const {
    const auto it = functions_.find(function);
    if (it == functions_.end()) return false;
    const SloCount& count = it->second;
    const double may_be_late = (1 - count.percentile / 100) * static_cast<double>(count.ended);
    return static_cast<double>(count.ended - count.in_time) > kFewLate + kBeyond * may_be_late;
  }

  static constexpr std::uint32_t kFewLate = 10;

 private:
  // With more all begin anew: what is not known is not given up.
  static constexpr std::size_t kMostFunctions = 65'536;
  static constexpr double kBeyond = 1.5;

  absl::flat_hash_map<Key, SloCount> functions_;
};

}  // namespace troupe

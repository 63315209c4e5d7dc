// ERROR BUDGETS: which functions have had so many late requests that they will not meet their SLO, whatever
// is done for them. An SLO asks for a share of the requests only: of a hundred whose 98th percentile has to
// be in time two may be late. Where more is asked for than can be served, each function is late for some, and
// all of them miss their SLO; when those yield that miss it anyhow, the others meet theirs. (Torpor's low
// group, 002, 5.2, is the same thought; here only those are in it that are far beyond.) Owned by whoever owns
// a queue; no locks.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/slo_count.hpp"

namespace troupe {

class ErrorBudgets {
 public:
  // A request of a function with a deadline ended (those that were cancelled or refused do not count).
  // `percentile` of its SLO in (0, 100]; 0: the default (base/slo_count.hpp).
  void Ended(const std::string& function, double percentile, bool in_time);
  // Half as many again as may be late were late, and kFewLate more: not of a function that was late a few
  // times since it began.
  [[nodiscard]] bool IsSpent(const std::string& function) const;

  static constexpr std::uint32_t kFewLate = 10;

 private:
  absl::flat_hash_map<std::string, SloCount> functions_;
};

}  // namespace troupe

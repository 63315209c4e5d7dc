// ERROR BUDGETS: which functions have had so many late requests that they can no longer meet their SLO. An
// SLO asks for a share of the requests only: of a hundred requests whose 98th percentile has to be in time,
// two may be late. Under overload every function is late for some requests, and all of them miss their SLO;
// when the functions that miss it anyhow yield, the others meet theirs. (Torpor's low group, 002, 5.2, is the
// same thought; here a function must be far beyond its budget.) The queue's owner, a node's scheduler or a
// router's request table, owns it; no locks.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "scheduling/slo_count.hpp"

namespace troupe {

class ErrorBudgets {
 public:
  // A request of a function with a deadline ended; cancelled and refused requests do not count. `percentile`
  // of its SLO in (0, 100]; 0: the default (scheduling/slo_count.hpp).
  void Ended(const std::string& function, double percentile, bool in_time);
  // Half as many again as may be late were late, and kFewLate more: not of a function that was late a few
  // times since it began.
  [[nodiscard]] bool IsSpent(const std::string& function) const;

  static constexpr std::uint32_t kFewLate = 10;

 private:
  absl::flat_hash_map<std::string, SloCount> functions_;
};

}  // namespace troupe

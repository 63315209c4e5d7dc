// ERROR BUDGETS: how many requests of each function may still be late. An SLO asks for a share of the
// requests only: of a hundred whose 98th percentile has to be in time two may be late. A function that has
// some of that left can let those go first that have none. Owned by whoever owns a queue; no locks.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace troupe {

class ErrorBudgets {
 public:
  // A request of a function with a deadline ended (those that were cancelled or refused do not count).
  // `percentile` of its SLO in (0, 100]; 0: the default (base/slo_order.hpp).
  void Ended(const std::string& function, double percentile, bool in_time);
  // One more may be late: with it the function would still meet its SLO, by all that have ended. Not of one
  // that is not known, or had too few requests for any of them to be late.
  [[nodiscard]] bool HasLeft(const std::string& function) const;

 private:
  struct Count {
    double may_be_late = 0;  // of each request; the latest percentile says
    std::uint32_t ended = 0, late = 0;
  };
  absl::flat_hash_map<std::string, Count> functions_;
};

}  // namespace troupe

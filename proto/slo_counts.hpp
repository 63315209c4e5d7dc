// Arithmetic on counts of requests and an SLO: what the manager adds up and people are shown.
#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/slo.pb.h"

namespace troupe::proto {

inline void AddCounts(const SloCounts& more, SloCounts& sum) {
  sum.set_in_time(sum.in_time() + more.in_time());
  sum.set_late_queue(sum.late_queue() + more.late_queue());
  sum.set_late_swap(sum.late_swap() + more.late_swap());
  sum.set_late_run(sum.late_run() + more.late_run());
  sum.set_late_network(sum.late_network() + more.late_network());
  sum.set_failed(sum.failed() + more.failed());
}

[[nodiscard]] inline std::uint64_t LateCount(const SloCounts& counts) {
  return counts.late_queue() + counts.late_swap() + counts.late_run() + counts.late_network();
}

[[nodiscard]] inline std::uint64_t EndedCount(const SloCounts& counts) {
  return counts.in_time() + LateCount(counts) + counts.failed();
}

// The share of requests that has to be in time. `percentile` in (0, 100]: at 100 no late request could ever be made good, so
// 99.99 stands for it.
[[nodiscard]] inline double RequiredShare(double percentile) {
  return std::min(percentile, 99.99) / 100;
}

// The share of the requests that ended which was in time; 1 when none ended.
[[nodiscard]] inline double Attained(const SloCounts& counts) {
  const auto ended = EndedCount(counts);
  return ended == 0 ? 1 : static_cast<double>(counts.in_time()) / static_cast<double>(ended);
}

// What is left of the misses that the SLO allows for the requests that ended: 1 untouched, 0 used up, below 0 overdrawn.
[[nodiscard]] inline double BudgetLeft(const SloCounts& counts, double percentile) {
  return 1 - (1 - Attained(counts)) / (1 - RequiredShare(percentile));
}

// Torpor's required request count (002, 5.2): so many more requests have to be in time until the SLO is met; negative: spare.
[[nodiscard]] inline double RequiredRequests(const SloCounts& counts, double percentile) {
  const double share = RequiredShare(percentile);
  return (share * static_cast<double>(EndedCount(counts)) - static_cast<double>(counts.in_time())) /
         (1 - share);
}

}  // namespace troupe::proto

// Sums of what functions used, and the days that they are kept by.
#pragma once

#include <cstdint>

#include "proto/usage.pb.h"

namespace troupe::proto {

// Names and day of `sum` stay.
inline void AddTo(UsageAmount& sum, const UsageAmount& more) {
  sum.set_gpu_ns(sum.gpu_ns() + more.gpu_ns());
  sum.set_runs(sum.runs() + more.runs());
  sum.set_bytes_moved(sum.bytes_moved() + more.bytes_moved());
  sum.set_host_kib_ms(sum.host_kib_ms() + more.host_kib_ms());
}

// The day of UTC, counted from 1970-01-01.
[[nodiscard]] inline std::int64_t DayOf(std::int64_t unix_ns) {
  constexpr std::int64_t kDay = 86'400'000'000'000;
  return unix_ns / kDay - (unix_ns % kDay < 0 ? 1 : 0);
}

}  // namespace troupe::proto

// The one wall between Troupe's time type and the machine's monotonic clock, shared by every process of a
// host.
#pragma once

#include "base/units.hpp"

namespace troupe::transport {

// CLOCK_MONOTONIC. Comparable between the processes of one host (one boot), which is what link buckets rely
// on.
[[nodiscard]] Time SteadyNow();

// What is left of a deadline in whole milliseconds for poll(2), rounded up; 0 when it has passed, at most one
// hour.
[[nodiscard]] int PollMillis(Time deadline);

}  // namespace troupe::transport

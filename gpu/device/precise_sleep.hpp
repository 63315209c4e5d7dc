// Sleeping that ends when it should: simulated copies and kernels are as good as their timing.
#pragma once

#include "base/units.hpp"

namespace troupe::gpu {

// Sleeps until `when` (CLOCK_MONOTONIC): in the kernel for nearly all of it, spinning only for the last
// moment. Returns at once for the past.
void PreciseSleepUntil(Time when);
// Asks the kernel not to batch this thread's wake-ups with others'. Once per thread.
void MakeSleepsPrecise();

}  // namespace troupe::gpu

#include "gpu/device/precise_sleep.hpp"

#include <sys/prctl.h>
#include <time.h>

#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {
// A wake-up comes this much late as a rule. Spinning for longer takes the core from threads that compute.
constexpr Duration kSpin = std::chrono::microseconds(15);
}  // namespace

void PreciseSleepUntil(Time when) {
  const Time wake = when - kSpin;
  if (transport::SteadyNow() < wake) {
    const auto at = wake.time_since_epoch().count();
    timespec until{};
    until.tv_sec = static_cast<time_t>(at / 1'000'000'000);
    until.tv_nsec = static_cast<long>(at % 1'000'000'000);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
    }
  }
  while (transport::SteadyNow() < when) __builtin_ia32_pause();
}

void MakeSleepsPrecise() {
  (void)prctl(PR_SET_TIMERSLACK, 1UL);
}

}  // namespace troupe::gpu

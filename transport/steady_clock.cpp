#include "transport/steady_clock.hpp"

#include <algorithm>
#include <ctime>

namespace troupe::transport {

Time SteadyNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Time(std::chrono::seconds(now.tv_sec) + Duration(now.tv_nsec));
}

int PollMillis(Time deadline) {
  constexpr Duration kLongest = std::chrono::hours(1);
  const Duration left = std::clamp(deadline - SteadyNow(), Duration::zero(), kLongest);
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

}  // namespace troupe::transport

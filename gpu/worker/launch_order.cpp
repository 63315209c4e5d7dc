#include "gpu/worker/launch_order.hpp"

#include <algorithm>

namespace troupe::gpu {

namespace {

Time BeginBy(Urgency urgency) {
  return Time(Duration(urgency));
}

}  // namespace

bool Yields(Urgency urgency, Time now) {
  return BeginBy(urgency) < now && BeginBy(urgency) >= now - kUnhurried;
}

bool GoesBefore(const Launchable& coming, const Launchable& here, Time now) {
  if (TurnAt(here.urgency, now) <= TurnAt(coming.urgency, now)) return false;
  if (now + here.takes <= BeginBy(coming.urgency)) return false;
  return std::max(now + coming.takes, coming.weights) <= BeginBy(here.urgency);
}

}  // namespace troupe::gpu

// LAUNCH ORDER: which of a device's runs goes first, where deadlines order them. Pure; the simulator's
// workers go by it, too.
#pragma once

#include <compare>

#include "base/units.hpp"
#include "gpu/swap/swap_policy.hpp"

namespace troupe::gpu {

// A run that can no longer begin in time yields to runs that still can, since it would make them late as
// well. It does not yield for ever: kUnhurried after it had to begin it is the most urgent of all.
[[nodiscard]] bool Yields(Urgency urgency, Time now);

// Where a run stands among others at some time; smaller goes first.
struct Turn {
  bool yields = false;
  Urgency urgency = 0;
  auto operator<=>(const Turn&) const = default;
};
[[nodiscard]] inline Turn TurnAt(Urgency urgency, Time now) {
  return {Yields(urgency, now), urgency};
}

// A run that could begin now.
struct Launchable {
  Urgency urgency = 0;
  Duration takes{};  // once its weights are there; zero: unknown
  Time weights{};    // when the last of them are expected; Time::max(): unknown
};
// Two runs cannot compute at the same time; the weights of `here` are resident, those of `coming` are on
// their way. If `coming` began now it would keep the device while it waits for them. It goes first only when
// its turn is first, when it could not begin in time behind `here`, and when it is done before `here` has to
// begin.
[[nodiscard]] bool GoesBefore(const Launchable& coming, const Launchable& here, Time now);

}  // namespace troupe::gpu

// LAUNCH ORDER: which of a device's runs goes first, where deadlines order them. Pure; the simulator's
// workers go by it, too.
#pragma once

#include <compare>

#include "base/units.hpp"
#include "gpu/swap/swap_policy.hpp"

namespace troupe::gpu {

// A run that can no longer begin in time yields to those that still can, since it would make them late as
// well; not for ever: kUnhurried after it had to begin it is the most urgent of all.
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
  Duration takes{};  // once its weights are there; zero: nobody knows
  Time weights{};    // when the last of them are expected; Time::max(): nobody knows
};
// Of two runs that cannot compute at the same time one has its weights, those of the other are on their way:
// begun now it would keep the device while it waits for them. It does go first when it comes first by its
// turn, could not begin in time behind the other one, and is done before that one has to begin.
[[nodiscard]] bool GoesBefore(const Launchable& coming, const Launchable& here, Time now);

}  // namespace troupe::gpu

// How long the only owner of something (a function's device state) goes on without the cluster manager. Both
// sides keep to it: the owner takes nothing new afterwards, and the manager makes no other member the owner
// before.
#pragma once

#include <algorithm>

#include "base/units.hpp"

namespace troupe::cluster {

// Where members have no lease, or a longer one.
inline constexpr Duration kLongestExclusiveLease = std::chrono::seconds(10);

// `member_lease`: of all that a member does; zero: none.
[[nodiscard]] constexpr Duration ExclusiveLease(Duration member_lease) {
  return member_lease > Duration::zero() ? std::min(member_lease, kLongestExclusiveLease)
                                         : kLongestExclusiveLease;
}

}  // namespace troupe::cluster

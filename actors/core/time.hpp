// Time as actors see it: the clock of their system, which is real in a daemon and virtual in the simulator.
#pragma once

#include <caf/actor_clock.hpp>
#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <chrono>
#include <utility>

#include "base/units.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

template <class Self>
[[nodiscard]] Time Now(Self* self) {
  return Time(std::chrono::duration_cast<Duration>(self->clock().now().time_since_epoch()));
}

// Sends `message` to `self` after `delay`, on that clock. A timer cannot be cancelled: a handler checks
// whether the message still means something.
template <class Self, class Message>
void After(Self* self, Duration delay, Message message) {
  self->delayed_send(self, delay < Duration::zero() ? Duration::zero() : delay, std::move(message));
}

// One of an actor's own timers; `what` is from its private enumeration, `token` tells one of them from
// another.
[[nodiscard]] inline proto::Tick MakeTick(std::uint32_t what, std::uint64_t token = 0) {
  proto::Tick tick;
  tick.set_what(what);
  tick.set_token(token);
  return tick;
}

}  // namespace troupe::actors

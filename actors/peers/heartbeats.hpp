// Heartbeats of connections between processes: an end that hears nothing for too long hangs up, so every
// process sends them, the shell too.
#pragma once

#include <caf/actor_system_config.hpp>
#include <caf/timespan.hpp>
#include <chrono>

namespace troupe::actors {

// CAF has them off: without them a silent partition is never noticed. The limit is above any pause of a
// process that may pass unnoticed: a process that stood still for longer finds all of its peers silent when
// it wakes up, and hangs up on them before it reads what they sent. Members are watched by heartbeats of
// their own, which are faster (cluster/membership_table.hpp).
inline void SetHeartbeats(caf::actor_system_config& out) {
  out.set("middleman.heartbeat-interval", caf::timespan(std::chrono::milliseconds(200)));
  out.set("middleman.connection-timeout", caf::timespan(std::chrono::seconds(3)));
}

}  // namespace troupe::actors

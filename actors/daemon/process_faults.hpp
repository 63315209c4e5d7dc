// What an operator may do to this daemon with `troupe chaos run`.
#pragma once

#include <caf/send.hpp>

#include "actors/core/fault_hook.hpp"
#include "actors/daemon/common.hpp"
#include "actors/interfaces/fault_target.hpp"

namespace troupe::actors {

// Empty unless the configuration allows faults. KILL_DAEMON ends the process as kill -9 would; STOP_DAEMON
// stops it as SIGSTOP would, and a process of its own wakes it; CUT_TENSORS cuts `common.channel`. Times of
// the last two: up to ten minutes. `common` outlives what is returned.
[[nodiscard]] FaultHook ProcessFaults(Common& common);
// Opens the gate of a manager or member of this daemon, if the configuration says so.
template <class Handle>
void AllowFaultsIn(Common& common, const Handle& actor) {
  if (!common.config.security.allow_faults) return;
  caf::anon_send(caf::actor_cast<FaultGateActor>(actor), AllowFaults{ProcessFaults(common)});
}

}  // namespace troupe::actors

// FAULT TARGET: what a MEMBER and its NODE CONTROLLER answer beside their own interfaces, for `troupe chaos
// run`. Asked by: CLUSTER MANAGER (InjectFault, of a MEMBER: refused unless its daemon allows faults), MEMBER
// (InjectFault, of its NODE CONTROLLER: what its GPU workers are to do to themselves).
// FAULT GATE: opened by a daemon that allows faults, after it spawned its CLUSTER MANAGER or MEMBER; closed
// else.
#pragma once

#include "actors/core/fault_hook.hpp"
#include "actors/interfaces/interface.hpp"
#include "proto/admin.pb.h"

namespace troupe::actors {

using FaultTargetActor = Interface<Asks<proto::InjectFault, proto::AdminReply>>;
using FaultGateActor = Interface<Hears<AllowFaults>>;

}  // namespace troupe::actors

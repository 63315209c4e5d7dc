// EXECUTOR: owns one GPU worker: starts or re-adopts it, feeds it, watches it, restarts it.
// Asked by:  NODE CONTROLLER (orders, KillWorker, AssignWorker).   Tells: NODE CONTROLLER (ExecutorReport at
// each change of state). Decides with node::ExecutorMachine (supervision); reaches the worker through
// WorkerLink only. An order is answered exactly once: by the worker's outcome, or with UNAVAILABLE when the
// worker died first. Losing it loses no data: the worker lives on for its lease and the next executor adopts
// it with what it holds.
#pragma once

#include "actors/interfaces/interface.hpp"
#include "proto/local.pb.h"
#include "proto/worker.pb.h"

namespace troupe::actors {

using ExecutorActor = Interface<Asks<proto::WorkerOrder, proto::WorkerOutcome>, Hears<proto::KillWorker>,
                                Hears<proto::AssignWorker>>;

}  // namespace troupe::actors

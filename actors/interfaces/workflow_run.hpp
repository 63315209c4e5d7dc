// WORKFLOW RUN: one run of a workflow: a durable DAG whose steps are function calls.
// Asked by:  gateway front (InferRequest: answered with the workflow's outputs).
// Asks:      ROUTER (InferRequest per step), CLUSTER MANAGER (StartRun, CommitStep, FinishRun, StoreBlob).
// Told by:   gateway front, CLUSTER MANAGER (CancelInfer: its calls end at the router, the node, the GPU's
// queue; RunTaken: another has it). Decides with cluster::WorkflowProgress. A step's outputs are committed
// before a step that needs them begins; a run that the log knows goes on behind its committed steps, one that
// has ended is answered as it ended. While the manager is away the run waits for it. Losing it loses no
// committed step: the run log keeps them, and the manager has another gateway go on behind them. One run has
// one owner: an earlier one is told, what it commits is refused, and it waits for the run's end like any
// other submission of it.
//
//   submitting -> owner -> ended
//   submitting -> waiting      another gateway owns the run
//   waiting -> ended           the owner has told the end
//   waiting -> owner           the run has no owner any more
//   owner -> waiting           the manager has claimed the run for another gateway
#pragma once

#include "actors/interfaces/interface.hpp"
#include "proto/local.pb.h"
#include "proto/request.pb.h"

namespace troupe::actors {

using WorkflowRunActor = Interface<Asks<proto::InferRequest, proto::InferReply>, Hears<proto::CancelInfer>,
                                   Hears<proto::RunTaken>>;

}  // namespace troupe::actors

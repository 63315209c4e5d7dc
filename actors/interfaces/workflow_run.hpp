// WORKFLOW RUN: one run of a workflow: a durable DAG whose steps are function calls.
// Asked by:  gateway front (InferRequest: answered with the workflow's outputs).
// Asks:      ROUTER (InferRequest per step), CLUSTER MANAGER (StartRun, CommitStep, FinishRun, StoreBlob).
// Decides with cluster::WorkflowProgress. A step's outputs are committed before a step that needs them
// begins. Losing it loses no committed step: the run log keeps them. The run stays RUNNING there; nobody
// continues it.
#pragma once

#include "actors/interfaces/interface.hpp"
#include "proto/local.pb.h"
#include "proto/request.pb.h"

namespace troupe::actors {

using WorkflowRunActor = Interface<Asks<proto::InferRequest, proto::InferReply>, Hears<proto::CancelInfer>>;

}  // namespace troupe::actors

// FRONT: where a gateway's requests enter: functions go to the router, workflows to a run of their own.
// Asked by:  the HTTP front's threads, shells (InferRequest).   Asks: ROUTER, WORKFLOW RUN.
// Asked by:  CLUSTER MANAGER (DescribeGateway).
// Told by:   CLUSTER MANAGER (ContinueRun: a run whose own gateway is gone goes on here).
// Told by:   shells of earlier releases (ReleaseOutputs), which read outputs where they lay; nothing follows from it.
// It only looks up which of the two a name is, and carries the large tensors of shells (gateway/shell_tensors). Losing it loses the requests under way: their clients retry;
// the runs under way go on at another gateway.
#pragma once

#include "actors/interfaces/interface.hpp"
#include "proto/local.pb.h"
#include "proto/request.pb.h"
#include "proto/slo.pb.h"
#include "proto/workflow.pb.h"

namespace troupe::actors {

using FrontActor = Interface<Asks<proto::InferRequest, proto::InferReply>,
                             Asks<proto::DescribeGateway, proto::GatewayDescription>,
                             Hears<proto::ReleaseOutputs>, Hears<proto::ContinueRun>>;

}  // namespace troupe::actors

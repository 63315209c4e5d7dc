// FRONT: the gateway's door: functions go to the router, workflows to a run of their own.
// Asked by:  the HTTP front's threads, shells (InferRequest).   Asks: ROUTER, WORKFLOW RUN.
// It only looks up which of the two a name is. Losing it loses the requests under way: their clients retry.
#pragma once

#include "actors/interfaces/interface.hpp"
#include "proto/local.pb.h"
#include "proto/request.pb.h"

namespace troupe::actors {

using FrontActor = Interface<Asks<proto::InferRequest, proto::InferReply>, Hears<proto::ReleaseOutputs>>;

}  // namespace troupe::actors

// ROUTER: owns the requests that no node has taken yet, and the choice of where each goes.
// Asked by:  gateway front, WORKFLOW RUN, shell (InferRequest).   Asks: NODE CONTROLLER (SubmitRequest).
// Told by:   CLUSTER MANAGER (ClusterUpdate), NODE CONTROLLER (CreditGrant).
// Decides with cluster::RequestTable. A request leaves only on a credit of the node; a full queue is
// RESOURCE_EXHAUSTED with a time to retry after. Losing it loses the requests it holds: their clients see a
// closed connection and retry.
#pragma once

#include "actors/interfaces/interface.hpp"
#include "proto/cluster.pb.h"
#include "proto/local.pb.h"
#include "proto/request.pb.h"

namespace troupe::actors {

using RouterActor =
    Interface<Asks<proto::InferRequest, proto::InferReply>, Hears<proto::CancelInfer>,
              Hears<proto::ReleaseOutputs>, Asks<proto::ExportTensors, proto::ExportedTensors>,
              Hears<proto::CreditGrant>, Hears<proto::ClusterUpdate>, Hears<proto::MemberJoined>,
              Asks<proto::DescribeMember, proto::MemberReport>>;

}  // namespace troupe::actors

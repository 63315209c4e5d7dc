// CLUSTER MANAGER: owns membership, the function and workflow registries, placement of host copies, the run
// log. Asked by:  members (JoinRequest, Heartbeat), shell and gateways (AdminRequest, UploadChunk), CACHE
// (FetchObject, LocateModel, DigestRange),
//            WORKFLOW RUN (StartRun, CommitStep, FinishRun).
// Asks:      NODE CONTROLLER (AdoptModel, DescribeNode, DrainNode).   Tells: members (ClusterUpdate), FRONT
//            (ContinueRun), WORKFLOW RUN (RunTaken).
// Decides with cluster::Cluster; durable through MetadataStore, models through ModelRepository. The only
// writer of cluster metadata: a change is answered after it is synced, never before. Losing it loses nothing
// acknowledged: it is rebuilt from the store, and members join again.
#pragma once

#include "actors/interfaces/front.hpp"
#include "actors/interfaces/interface.hpp"
#include "actors/interfaces/node_controller.hpp"
#include "actors/interfaces/router.hpp"
#include "actors/interfaces/workflow_run.hpp"
#include "proto/admin.pb.h"
#include "proto/cluster.pb.h"
#include "proto/workflow.pb.h"

namespace troupe::actors {

using ClusterManagerActor = Interface<
    typename caf::replies_to<proto::JoinRequest, NodeControllerActor>::template with<proto::JoinReply>,
    typename caf::replies_to<proto::JoinRequest, RouterActor>::template with<proto::JoinReply>,
    typename caf::replies_to<proto::JoinRequest, RouterActor, FrontActor>::template with<proto::JoinReply>,
    Asks<proto::Heartbeat, proto::HeartbeatReply>, Hears<proto::LeaveRequest>,
    Asks<proto::AdminRequest, proto::AdminReply>, Asks<proto::UploadChunk, proto::UploadReply>,
    Asks<proto::FetchObject, proto::FetchReply>, Hears<proto::ReleaseFetched>,
    Asks<proto::LocateModel, proto::ModelPlaces>, Asks<proto::DigestRange, proto::RangeDigest>,
    typename caf::replies_to<proto::StartRun, WorkflowRunActor>::template with<proto::RunReply>,
    Asks<proto::StartRun, proto::RunReply>, Asks<proto::CommitStep, proto::RunReply>,
    Asks<proto::FinishRun, proto::RunReply>, Asks<proto::StoreBlob, proto::StoreBlobReply>>;

}  // namespace troupe::actors

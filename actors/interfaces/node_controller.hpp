// NODE CONTROLLER: decides which GPU of this node runs a request, and where its weights come from.
// Asked by:  ROUTER (SubmitRequest, ExportTensors, RouterHello), CLUSTER MANAGER (AdoptModel, DrainNode, DescribeNode,
//            RunTrial, GiveUpStates, TakeOverStates, StateReplicas), another node (FetchObject, for this node's cache;
//            FetchImage, CopyImage).
// Asks:      EXECUTOR (orders), CACHE (host copies).   Tells: ROUTER (CreditGrant), its MEMBER
// (MemberReport). Owns THE view of the node's GPUs: one decision gives GPU, source and victims together.
// Decides with node::SwapScheduler; this actor only moves messages. Losing it loses no data: rebuilt from the
// executors' reports and the cache.
#pragma once

#include "actors/interfaces/interface.hpp"
#include "proto/admin.pb.h"
#include "proto/cluster.pb.h"
#include "proto/local.pb.h"
#include "proto/request.pb.h"

namespace troupe::actors {

// What a node controller tells each router that said hello.
using CreditSinkActor = Interface<Hears<proto::CreditGrant>>;

using NodeControllerActor = Interface<
    Asks<proto::SubmitRequest, proto::SubmitReply>, Hears<proto::CancelSubmit>, Hears<proto::ReleaseRequest>,
    Asks<proto::ExportTensors, proto::ExportedTensors>,
    typename caf::replies_to<proto::RouterHello, CreditSinkActor>::template with<proto::CreditGrant>,
    Asks<proto::AdoptModel, proto::AdoptModelReply>, Hears<proto::DisownModel>,
    Asks<proto::GiveUpStates, proto::GivenUpStates>, Asks<proto::TakeOverStates, proto::TakenOverStates>,
    Hears<proto::ForgetStates>, Asks<proto::FetchImage, proto::FetchReply>,
    Asks<proto::StateReplicas, proto::ReplicasInStep>, Asks<proto::CopyImage, proto::CopiedImage>,
    Asks<proto::DrainNode, proto::DrainReply>, Asks<proto::DescribeNode, proto::NodeDescription>,
    Asks<proto::RunTrial, proto::TrialEnded>, Hears<proto::StopTrial>, Hears<proto::KillGpu>,
    Hears<proto::ClusterUpdate>, Hears<proto::MemberJoined>, Asks<proto::DescribeMember, proto::MemberReport>,
    Hears<proto::ExecutorReport>, Asks<proto::FetchObject, proto::FetchReply>, Hears<proto::ReleaseFetched>>;

}  // namespace troupe::actors

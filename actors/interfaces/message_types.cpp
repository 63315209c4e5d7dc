#include "actors/interfaces/message_types.hpp"

#include <caf/actor_system_config.hpp>

#include "actors/interfaces/cluster_manager.hpp"
#include "actors/interfaces/peer_watcher.hpp"
#include "proto/admin.pb.h"
#include "proto/cluster.pb.h"
#include "proto/local.pb.h"
#include "proto/request.pb.h"
#include "proto/workflow.pb.h"

namespace troupe::actors {

namespace {

template <class... Messages>
struct MessageList {
  static void Register(caf::actor_system_config& config) {
    (config.add_message_type<Messages>(std::string(Messages::descriptor()->full_name())), ...);
  }
  static std::vector<std::unique_ptr<google::protobuf::Message>> Instances() {
    std::vector<std::unique_ptr<google::protobuf::Message>> out;
    (out.push_back(std::make_unique<Messages>()), ...);
    return out;
  }
};

// Whatever one actor may say to another in a different process.
using Messages = MessageList<
    proto::InferRequest, proto::InferReply, proto::CancelInfer, proto::ReleaseOutputs, proto::ExportTensors,
    proto::ExportedTensors, proto::SubmitRequest, proto::SubmitReply, proto::CancelSubmit,
    proto::ReleaseRequest, proto::RouterHello, proto::CreditGrant, proto::JoinRequest, proto::JoinReply,
    proto::Heartbeat, proto::HeartbeatReply, proto::LeaveRequest, proto::ClusterUpdate, proto::AdoptModel,
    proto::AdoptModelReply, proto::DisownModel, proto::DrainNode, proto::DrainReply, proto::DescribeNode,
    proto::NodeDescription, proto::DescribeGateway, proto::GatewayDescription, proto::RunTrial,
    proto::TrialEnded, proto::StopTrial, proto::KillGpu, proto::InjectFault, proto::FetchObject,
    proto::FetchReply, proto::GiveUpStates, proto::GivenUpStates, proto::TakeOverStates,
    proto::TakenOverStates, proto::ForgetStates, proto::StateReplicas, proto::ReplicasInStep,
    proto::CopyImage, proto::CopiedImage, proto::FetchImage, proto::FetchModel, proto::ReleaseFetched,
    proto::LocateModel, proto::ModelPlaces, proto::DigestRange, proto::RangeDigest, proto::UploadChunk,
    proto::UploadReply, proto::AdminRequest, proto::AdminReply, proto::StartRun, proto::CommitStep,
    proto::FinishRun, proto::RunReply, proto::StoreBlob, proto::StoreBlobReply, proto::ContinueRun,
    proto::RunTaken,
    // These stay in one process today; the interfaces that mention them are announced to other ones.
    proto::MemberJoined, proto::DescribeMember, proto::MemberReport, proto::ExecutorReport,
    proto::WorkerOrder, proto::WorkerOutcome, proto::KillWorker, proto::WorkerListening, proto::WorkerReady,
    proto::WorkerDied, proto::WorkerAnswer, proto::AssignWorker, proto::PlaceModel, proto::DropModel,
    proto::HostModel, proto::PullImage, proto::PulledImage, proto::SendImageCopy, proto::Continue, proto::Job,
    proto::Tick, proto::PeerUp, proto::PeerLost>;

}  // namespace

void RegisterMessageTypes(caf::actor_system_config& config) {
  Messages::Register(config);
  config.add_message_type<CreditSinkActor>("troupe.CreditSink");
  config.add_message_type<NodeControllerActor>("troupe.NodeController");
  config.add_message_type<RouterActor>("troupe.Router");
  config.add_message_type<WorkflowRunActor>("troupe.WorkflowRun");
  config.add_message_type<FrontActor>("troupe.Front");
  // Within one process only, but a message's types must have names.
  config.add_message_type<PeerWatcherActor>("troupe.PeerWatcher");
}

std::vector<std::unique_ptr<google::protobuf::Message>> ListedMessages() {
  return Messages::Instances();
}

}  // namespace troupe::actors

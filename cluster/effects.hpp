// What a cluster wants to be done, as plain data, in the order in which it has to be done.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cluster/admin/audit_entry.hpp"
#include "cluster/events.hpp"
#include "cluster/object_references.hpp"
#include "cluster/records/changes.hpp"
#include "proto/stage_wish.hpp"

namespace troupe::cluster {

// --- answers ---
template <class Reply>
struct Answer {
  Ask ask = 0;
  Reply reply{};
};
struct DropAsk {  // its answer is not waited for any more
  Ask ask = 0;
};
struct ShowImports {  // answered by the caller: the imports of one file, or all of them for an empty digest
  Ask ask = 0;
  std::string onnx_digest{};
};

// --- what is durable: each is answered ---
struct Commit {
  std::uint64_t ticket = 0;
  Changes changes{};
};
struct WriteAudit {
  std::uint64_t ticket = 0;
  AuditEntry entry{};
};

// --- members ---
struct Connect {  // the member that asked to join with this is told and asked from now on
  Ask ask = 0;
  std::string name{};
};
struct Disconnect {
  std::string name{};
};
struct TellMembers {  // all that are connected: first nodes, then gateways
  proto::ClusterUpdate update{};
};
struct AskAdoption {
  std::string digest{};
  std::string node{};
  std::uint64_t epoch = 0;  // of the node's life
  proto::FunctionRecord function{};
  std::optional<proto::StateReplicas> replicas{};
};
struct TellDisowned {
  std::string node{};
  std::string digest{};
};
struct AskGiveUp {
  std::string digest{};
  std::string node{};
  std::uint64_t move = 0;
  proto::GiveUpStates wish{};
};
struct AskTakeOver {
  std::string digest{};
  std::string node{};
  std::uint64_t move = 0;
  proto::TakeOverStates wish{};
};
struct TellForget {  // the states of this model's functions are another node's
  std::string node{};
  std::string digest{};
  std::uint64_t term = 0;  // of the other node
};
struct NameReplicas {  // to the home of the states; answered by ReplicasAnswered
  std::string digest{};
  std::string node{};
  std::uint64_t question = 0;
  proto::StateReplicas wish{};
};
struct AskDrain {
  Ask ask = 0;  // 0: the answer does not matter
  proto::DrainNode wish{};
};
struct AskTrial {
  std::string node{};
  proto::RunTrial trial{};
};
struct TellTrialStopped {
  std::string node{};
  proto::StopTrial stop{};
};
struct KillGpu {
  proto::KillGpu kill{};
};
struct DescribeNode {
  std::uint64_t inquiry = 0;
  std::string node{};
};
struct DescribeGateway {
  std::uint64_t inquiry = 0;
  std::string gateway{};
  proto::DescribeGateway ask{};
};
struct CarryFault {  // to the member that it names, or to the manager's process
  Ask ask = 0;
  proto::InjectFault fault{};
};

// --- runs of workflows ---
struct WatchRunner {  // RunnerLost when it is gone
  Runner runner{};
};
struct CancelRunner {
  Runner runner{};
};
struct TellTaken {
  Runner runner{};
  proto::RunTaken taken{};
};
struct GoOn {
  std::string gateway{};
  proto::ContinueRun message{};
};

// --- models, keys, machines, objects: each is answered ---
struct ImportModel {
  Ask ask = 0;
  std::string onnx_digest{};
  std::string client{};
  proto::Precision precision{};  // in which its weights may be packed
  proto::StageWish stages{};     // when it is divided, and which stage is imported
};
struct MakeKey {
  Ask ask = 0;
  proto::ApiKeyRecord key{};  // without its digest
};
struct OrderMachine {
  ProvisionAction action{};
  proto::ClusterStatusReply status{};  // all members
};
struct CollectObjects {
  Digests kept{};
  Duration unused_for{};
};

// --- the log, timers ---
struct Note {
  proto::Event event{};
};
struct WakeMe {
  Timer timer{};
  Duration after{};
};

using Effect =
    std::variant<Answer<proto::JoinReply>, Answer<proto::HeartbeatReply>, Answer<proto::AdminReply>,
                 Answer<proto::RunReply>, Answer<proto::ModelPlaces>, DropAsk, ShowImports, Commit,
                 WriteAudit, Connect, Disconnect, TellMembers, AskAdoption, TellDisowned, AskGiveUp,
                 AskTakeOver, TellForget, NameReplicas, AskTrial, TellTrialStopped, AskDrain, KillGpu,
                 DescribeNode, DescribeGateway, CarryFault, WatchRunner, CancelRunner, TellTaken, GoOn,
                 ImportModel, MakeKey, OrderMachine, CollectObjects, Note, WakeMe>;
using Effects = std::vector<Effect>;

}  // namespace troupe::cluster

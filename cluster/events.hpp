// What can happen to a cluster, as plain data: cluster::Cluster hears these and nothing else.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "cluster/provisioning.hpp"
#include "proto/access.pb.h"
#include "proto/admin.pb.h"
#include "proto/cluster.pb.h"
#include "proto/function.pb.h"
#include "proto/function_profile.pb.h"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

// The number of a question, given by the caller; the answer (effects.hpp) names it. 0: no question.
using Ask = std::uint64_t;
// The actor of a gateway that runs a workflow run: its number in its process, and that process. Both 0: none.
struct Runner {
  std::uint64_t actor = 0;
  std::uint32_t process = 0;

  [[nodiscard]] bool exists() const { return process != 0; }
  auto operator<=>(const Runner&) const = default;
};

// The timers that a cluster sets (WakeMe in effects.hpp).
enum class Timer : std::uint32_t { kPulse = 1, kTakeBack = 3 };

// --- the process ---
// A function whose model's objects the store lacks, one text each.
struct Lacking {
  proto::FunctionKey key{};
  std::vector<std::string> objects{};
};
struct Started {  // the first event
  std::vector<Lacking> lacking{};
};
struct TimerFired {
  Timer timer{};
};
struct Committed {  // the answer to Commit
  std::uint64_t ticket = 0;
  absl::Status status{};
};
struct AuditWritten {  // the answer to WriteAudit
  std::uint64_t ticket = 0;
  absl::Status status{};
};

// --- members ---
struct JoinAsked {
  Ask ask = 0;
  proto::JoinRequest join{};
  absl::Status allowed{};     // whether its process may take part under this name
  std::string daemon{};       // the same as long as the member's process runs, and no other's
  std::string certificate{};  // that its process shows; empty: none
  bool gateway = false;
  std::uint32_t front = 0;  // the process that can go on with runs of workflows; 0: none
};
struct HeartbeatHeard {
  Ask ask = 0;
  proto::Heartbeat heartbeat{};
};
struct LeaveAsked {
  proto::LeaveRequest leave{};
};
struct MemberLost {  // the connection to it is gone
  std::string name{};
  bool gateway = false;
};
struct AdoptionAnswered {  // the answer to AskAdoption
  std::string digest{};
  std::string node{};
  std::uint64_t epoch = 0;
  std::string function{};
  absl::Status status{};
};

// --- states that move to another node; `move`: the number of the move ---
struct StatesGivenUp {  // the answer to AskGiveUp
  std::string digest{};
  std::uint64_t move = 0;
  absl::StatusOr<proto::GivenUpStates> reply = absl::UnknownError("");
};
struct ReplicasAnswered {  // the answer to NameReplicas: the nodes that should be in step
  std::string digest{};
  std::uint64_t question = 0;
  absl::StatusOr<proto::ReplicasInStep> reply = absl::UnknownError("");
};
struct StatesTakenOver {  // the answer to AskTakeOver
  std::string digest{};
  std::uint64_t move = 0;
  absl::Status status{};
};

struct PlacesAsked {  // which nodes, but the one that asks, hold a copy of this model
  Ask ask = 0;
  std::string digest{};
  std::string node{};
};

// --- runs of workflows ---
struct RunnerLost {
  Runner runner{};
};
struct StartAsked {
  Ask ask = 0;
  proto::StartRun command{};
  Runner asker{};  // that submits the run; none: it is not run yet
};
struct StepAsked {
  Ask ask = 0;
  proto::CommitStep command{};
};
struct FinishAsked {
  Ask ask = 0;
  proto::FinishRun command{};
};

// --- administration ---
// For whom a request was made, and through which gateway; as lines of the audit have it.
struct Asker {
  std::string who{};
  std::string from{};
  std::string via{};
};
struct AdminAsked {
  Ask ask = 0;
  proto::AdminRequest request{};
  Asker asker{};
  absl::Status allowed{};  // whether the process that asks may ask this
  absl::Status room{};     // why the audit can take no line; OK: it can
};
struct ModelImported {  // the answer to ImportModel
  Ask ask = 0;
  absl::StatusOr<proto::FunctionRecord> function = absl::UnknownError("");
};
struct KeyMade {  // the answer to MakeKey
  Ask ask = 0;
  proto::ApiKeyRecord key{};                                  // with its digest
  absl::StatusOr<std::string> text = absl::UnknownError("");  // or why there is no key
  absl::Status valid{};                                       // whether such a key may be kept
};
struct TrialAnswered {  // the answer to AskTrial
  std::uint64_t experiment = 0;
  absl::StatusOr<proto::TrialEnded> ended = absl::UnknownError("");
};
struct DrainAnswered {  // the answer to AskDrain
  Ask ask = 0;
  absl::Status status{};
};
struct NodeDescribed {  // the answer to DescribeNode
  std::uint64_t inquiry = 0;
  absl::StatusOr<proto::NodeDescription> description = absl::UnknownError("");
};
struct GatewayDescribed {  // the answer to DescribeGateway
  std::uint64_t inquiry = 0;
  absl::StatusOr<proto::GatewayDescription> description = absl::UnknownError("");
};
struct FaultCarried {  // the answer to CarryFault
  Ask ask = 0;
  proto::InjectFault fault{};
  proto::AdminReply reply{};
};

// --- machines, objects ---
struct MachineOrdered {  // the answer to OrderMachine
  ProvisionAction action{};
  absl::Status status{};
};
struct ObjectsCollected {  // the answer to CollectObjects
  absl::StatusOr<Bytes> removed = absl::UnknownError("");
};

using Event = std::variant<Started, TimerFired, Committed, AuditWritten, JoinAsked, HeartbeatHeard,
                           LeaveAsked, MemberLost, AdoptionAnswered, StatesGivenUp, StatesTakenOver,
                           ReplicasAnswered, PlacesAsked, RunnerLost, StartAsked, StepAsked, FinishAsked,
                           AdminAsked, ModelImported, KeyMade, TrialAnswered, DrainAnswered, NodeDescribed,
                           GatewayDescribed, FaultCarried, MachineOrdered, ObjectsCollected>;

}  // namespace troupe::cluster

// What can happen to a node, as plain data: node::Node hears these and nothing else.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "node/request.hpp"
#include "proto/cluster.pb.h"
#include "proto/function.pb.h"
#include "proto/function_profile.pb.h"
#include "proto/local.pb.h"
#include "proto/request.pb.h"
#include "proto/usage.pb.h"
#include "proto/worker.pb.h"

namespace troupe::node {

// The number of a question, given by the caller; the answer (effects.hpp) names it. 0: no question.
using Ask = std::uint64_t;
using Tensors = google::protobuf::RepeatedPtrField<proto::Tensor>;
// The image of a function's state. What its tensors refer to stays where it is as long as the image lives.
using ImagePtr = std::shared_ptr<const proto::StateImage>;

// The timers that a node sets (WakeMe in effects.hpp).
enum class Timer : std::uint32_t {
  kExpire = 1,
  kGrant,
  kWork,
  kCopies,
  kSaveProfiles,
  kGiveBack,
  kOrphans,
  kRemember,
  kSaveAdopted,
  kBroadcasts,
  kMeters,
  kRefill,
  kSequences,
  kStates
};

// --- the process ---
struct Started {};   // the first event
struct Stopping {};  // the last one: what is not on disk yet is to be written
struct TimerFired {
  Timer timer{};
};

// --- routers and their requests ---
struct RouterSaidHello {
  Ask ask = 0;
  proto::RouterHello hello{};
};
struct RouterLost {
  std::uint64_t router = 0;
};
struct RequestArrived {
  Ask ask = 0;
  proto::SubmitRequest message{};
  // Why this member may take nothing new (its lease is over), or no request of a function with state; empty:
  // it may.
  std::string lease_over{};
  std::string exclusive_lease_over{};
  bool inputs_elsewhere = false;  // some lie on another host
};
struct InputsArrived {  // the answer to BringInputs and PlaceZeros
  RequestId id{};
  absl::StatusOr<Tensors> inputs = absl::UnknownError("");
};
struct RequestCancelled {
  RequestId id{};
};
struct OutputsRead {
  RequestId id{};
};
struct ExportAsked {
  Ask ask = 0;
  proto::ExportTensors wish{};
};

// --- models ---
struct AdoptionAsked {
  Ask ask = 0;
  proto::FunctionRecord function{};
  // Of the states of its model's functions; absent: they have none.
  std::optional<proto::StateReplicas> replicas{};
  std::uint64_t epoch = 0;  // of this node, as the manager knows it
};
struct ModelDisowned {
  std::string digest{};
};
struct CopyFetched {  // the answer to FetchCopy
  std::string copy{};
  absl::Status status{};
  std::vector<std::string> wrong{};  // nodes that sent wrong bytes, one text each
};
struct CopyPlaced {  // the answer to PlaceCopy
  std::string copy{};
  absl::StatusOr<proto::HostCopy> host = absl::UnknownError("");
  Duration took{};
};

// --- workers ---
struct WorkerReported {
  proto::ExecutorReport report{};
};
struct OrderAnswered {  // exactly one for each GiveOrder; UNAVAILABLE when the worker died first
  proto::WorkerOutcome outcome{};
};
// The worker of a runtime is gone. The node makes it of a report, and all its parts hear it.
struct RuntimeLost {
  GpuIndex gpu = 0;
  std::string why{};
  bool unfit = false;  // and no other will come
};
// A runtime is to serve another key: what its worker was doing for the old one is over.
struct RuntimeReassigned {
  GpuIndex gpu = 0;
};

// --- images of functions' states ---
struct ImageLoaded {  // the answer to LoadImage. NotFound: there is none
  std::string function{};
  absl::StatusOr<ImagePtr> image = absl::UnknownError("");
  std::vector<std::string> sequences{};  // the sequences of the function that have an image
};
struct ImageSaved {  // the answer to SaveImage
  std::uint64_t batch = 0;
  absl::StatusOr<ImagePtr> image = absl::UnknownError("");
};

// --- states that move to another node, or come from one ---
struct StatesWanted {
  Ask ask = 0;
  proto::GiveUpStates wish{};
};
struct StatesOffered {
  Ask ask = 0;
  proto::TakeOverStates wish{};
};
struct StatesElsewhere {  // the states of this model's functions are another node's
  std::string digest{};
  std::uint64_t term = 0;  // of that node
};
struct ImageAsked {  // by the node that takes it over
  Ask ask = 0;
  proto::FetchImage wish{};
};
struct ImagesPulled {  // the answer to PullImages
  std::string digest{};
  absl::Status status{};
  Ask copy = 0;  // as in PullImages
};

// --- copies of images on other nodes ---
struct
    ReplicasNamed {  // this node is the home, and these are the nodes for copies; answered when others are to be in step
  Ask ask = 0;
  proto::StateReplicas wish{};
};
struct CopyOffered {  // by the home: an image of which this node is to have a copy
  Ask ask = 0;
  proto::CopyImage wish{};
};
struct CopyEnded {  // the answer to SendCopy
  std::uint64_t number = 0;
  absl::Status status{};
};

// --- metering ---
struct MetersRead {  // the answer to ReadMeters
  absl::StatusOr<std::vector<proto::MeterReading>> pages = absl::UnknownError("");
  std::int64_t unix_ns = 0;  // this host's wall clock
};
struct UsageSaved {  // the answer to SaveUsage
  absl::Status status{};
};
struct ProfilesSaved {  // the answer to SaveProfiles
  absl::Status status{};
};
struct AdoptedSaved {  // the answer to SaveAdopted
  absl::Status status{};
};

// --- profiles ---
struct TrialAsked {
  Ask ask = 0;
  proto::RunTrial trial{};
};
struct TrialStopped {
  std::uint64_t experiment = 0;
};

// --- the cluster and its operators ---
struct ClusterChanged {
  proto::ClusterUpdate update{};
};
struct Joined {
  std::uint64_t epoch = 0;
  proto::ClusterUpdate state{};
  bool lapsed = false;  // the lease of what only one member may have was over before
};
struct ReportAsked {
  Ask ask = 0;
  proto::DescribeMember wish{};
};
struct DrainAsked {
  Ask ask = 0;
  bool drain = false;
};
struct KillAsked {
  std::uint32_t device = 0;
};
struct FaultAsked {
  Ask ask = 0;
  std::uint32_t device = 0;
  proto::FaultOrder::Kind kind{};
};

using Event =
    std::variant<Started, Stopping, TimerFired, RouterSaidHello, RouterLost, RequestArrived, InputsArrived,
                 RequestCancelled, OutputsRead, ExportAsked, AdoptionAsked, ModelDisowned, CopyFetched,
                 CopyPlaced, WorkerReported, OrderAnswered, ImageLoaded, ImageSaved, StatesWanted,
                 StatesOffered, StatesElsewhere, ImageAsked, ImagesPulled, ReplicasNamed, CopyOffered,
                 CopyEnded, MetersRead, UsageSaved, ProfilesSaved, AdoptedSaved, TrialAsked, TrialStopped,
                 ClusterChanged, Joined, ReportAsked, DrainAsked, KillAsked, FaultAsked>;

}  // namespace troupe::node

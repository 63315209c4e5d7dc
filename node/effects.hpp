// What a node wants to be done, as plain data, in the order in which it has to be done.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "node/events.hpp"
#include "proto/cluster.pb.h"
#include "proto/profile.pb.h"

namespace troupe::node {

// --- answers ---
template <class Reply>
struct Answer {
  Ask ask = 0;
  Reply reply{};
};
struct TellRouter {
  std::uint64_t router = 0;
  proto::CreditGrant grant{};
};

// --- workers: each order is answered by one OrderAnswered ---
struct GiveOrder {
  GpuIndex gpu = 0;
  proto::WorkerOrder order{};
};
struct KillRuntime {
  GpuIndex gpu = 0;
  std::string reason{};
};
struct AssignRuntime {
  GpuIndex gpu = 0;
  proto::AssignWorker assign{};
};

// --- bytes of models ---
struct FetchCopy {  // from other nodes or the manager to the disk
  std::string copy{};
  proto::FetchModel fetch{};
};
struct PlaceCopy {  // from the disk into the host region
  std::string copy{};
  proto::PlaceModel place{};
};
struct DropCopy {
  proto::DropModel drop{};
};

// --- inputs of requests ---
struct BringInputs {  // from another host into this daemon's arena, until ForgetInputs
  RequestId id{};
  Tensors inputs{};
  Time expiry = Time::max();
};
struct ForgetInputs {
  RequestId id{};
};
struct PlaceZeros {  // into the arena, for the inputs without data
  RequestId id{};
  Tensors inputs{};
};
struct FreeZeros {
  Tensors inputs{};
};

// --- images of functions' states, in memory and on disk ---
struct LoadImage {
  std::string function{};
  std::vector<proto::TensorSpec> specs{};
  bool with_sequences = false;  // and the names of its sequences that have one
};
struct SaveImage {  // copies it out of the worker's arena and writes its file
  std::uint64_t batch = 0;
  proto::StateImage image{};
};
struct KeepImage {  // a saved image is now the image of its function
  ImagePtr image{};
};
struct RestoreImage {  // the file becomes again what the image is
  std::string function{};
};
struct UnloadImage {  // it stays in its file only
  std::string function{};
};
struct ForgetImage {
  std::string function{};
};

struct ReadImage {  // answered by the caller: a part of the file
  Ask ask = 0;
  proto::FetchImage wish{};
};
struct PulledState {
  std::string image{};
  std::vector<proto::TensorSpec> specs{};
  Bytes most{};  // that its file may have
};
struct PullImages {  // from another node; each of them is durable when it is answered well
  std::string digest{};
  std::string address{};
  std::vector<PulledState> images{};
  Ask copy = 0;  // the home's question that it is for; 0: they are taken over
};
struct SendCopy {  // to the node at this address; answered once, also when it cannot be reached
  std::uint64_t number = 0;
  std::string address{};
  proto::CopyImage copy{};
};

// --- files, the log, timers, the cluster ---
struct SaveProfiles {  // answered when it is durable
  proto::NodeProfiles profiles{};
};
struct SaveAdopted {  // answered when it is durable
  proto::ClusterUpdate adopted{};
};
struct ReadMeters {};  // all pages that are there: of workers that live and of those that have ended
struct SaveUsage {     // answered when it is durable
  proto::NodeUsage usage{};
};
struct DropMeter {  // its worker has ended, and the file has its last counts
  std::string page{};
};
struct Log {
  std::string kind{};
  std::string message{};
};
struct WakeMe {
  Timer timer{};
  Duration after{};
};
struct AskSince {  // for what changed in the cluster since this revision
  std::uint64_t revision = 0;
};

using Effect =
    std::variant<Answer<proto::SubmitReply>, Answer<proto::CreditGrant>, Answer<proto::AdoptModelReply>,
                 Answer<proto::MemberReport>, Answer<proto::DrainReply>, Answer<proto::TrialEnded>,
                 Answer<proto::ExportedTensors>, Answer<proto::GivenUpStates>, Answer<proto::TakenOverStates>,
                 Answer<proto::ReplicasInStep>, Answer<proto::CopiedImage>, Answer<proto::FetchReply>,
                 Answer<absl::Status>, TellRouter, GiveOrder, KillRuntime, AssignRuntime, FetchCopy,
                 PlaceCopy, DropCopy, BringInputs, ForgetInputs, PlaceZeros, FreeZeros, LoadImage, SaveImage,
                 KeepImage, RestoreImage, UnloadImage, ForgetImage, ReadImage, PullImages, SendCopy,
                 SaveProfiles, SaveAdopted, ReadMeters, SaveUsage, DropMeter, Log, WakeMe, AskSince>;
using Effects = std::vector<Effect>;

}  // namespace troupe::node

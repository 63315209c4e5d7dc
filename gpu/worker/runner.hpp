// Executes runs: their inputs come in while those before compute, as many as the device lets compute at a
// time; their outputs leave.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/share_ladder.hpp"
#include "gpu/device/device.hpp"
#include "gpu/memory/device_memory.hpp"
#include "gpu/swap/device_links.hpp"
#include "gpu/worker/compute_watch.hpp"
#include "gpu/worker/lanes.hpp"
#include "gpu/worker/launch_order.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/preparer.hpp"
#include "gpu/worker/residency.hpp"
#include "gpu/worker/run.hpp"
#include "gpu/worker/run_needs.hpp"
#include "gpu/worker/run_queue.hpp"
#include "gpu/worker/task_queue.hpp"

namespace troupe::gpu {

// Every run that was submitted is answered once, unless it was abandoned, and after the swap that brings its
// model. The main loop's thread; copies and
// launches end on the device's threads, which post back. Waiting runs are served by priority, then arrival,
// those first whose model, plan and inputs are there. A run whose model is on its way begins with the first
// group, when no other could compute: it may have to wait for the link between its steps. Runs of one plan
// compute one after the other; runs that have a share of the SMs compute beside others with shares, up to the
// whole GPU, and the first that has to wait for SMs is passed by none.
class Runner {
 public:
  Runner(DeviceMemory& memory, TaskQueue& queue, Lanes lanes, const WorkerLimits& limits, DeviceLinks& links,
         Residency& residency, Preparer& preparer);
  ~Runner();

  // The request's inputs have been checked (CheckRunInputs).
  void Submit(RunRequest request, Reply reply);
  // A run that has not begun to compute answers CANCELLED; others go on.
  void Cancel(std::uint64_t sequence);
  // Runs that have not begun in time answer DEADLINE_EXCEEDED.
  void Expire(Time now);
  [[nodiscard]] Time NextExpiry() const;
  // What has not begun to compute is failed with `status`, what has goes on. Sequences begin anew.
  void FailAll(const absl::Status& status);
  // A model that runs wait for is there or on its way (OK), or will not be.
  void ModelChanged(const std::string& digest, const absl::Status& status);
  // Whether runs wait for this model (runs that hold it are known to the model table).
  [[nodiscard]] bool Wants(const std::string& digest) const;
  // A state has come, or will not come; or the next run may use it.
  void StatesChanged();
  // Brings the control page up to date.
  void ShowCompute(Time now);
  [[nodiscard]] std::size_t in_flight() const { return runs_.size(); }
  [[nodiscard]] std::uint64_t runs_done() const { return runs_done_; }
  [[nodiscard]] Bytes bytes_in() const { return bytes_in_; }    // of inputs
  [[nodiscard]] Bytes bytes_out() const { return bytes_out_; }  // of outputs

 private:
  using Id = std::uint64_t;  // ours: sequences begin anew with each daemon
  absl::Status Accept(Id id, Run& run);
  absl::Status FindPlan(Id id, Run& run);
  // Runs that use a state of their function (run_state.cpp).
  absl::Status TakeTurn(Id id, Run& run);
  void LeaveTurn(Id id, Run& run);
  [[nodiscard]] static bool HasTurn(Id id, const Run& run) {
    return run.state == nullptr || StateTable::MayBegin(*run.state, id);
  }
  void FetchInputs(Id id, Run& run);
  void InputsHere(Id id, absl::StatusOr<std::vector<transport::TensorData>> inputs);
  void PlanHere(Id id, const absl::StatusOr<std::shared_ptr<DevicePlan>>& plan);
  void Advance();
  enum class Model { kAway, kComing, kHere };
  [[nodiscard]] Model ModelOf(const Run& run) const;
  [[nodiscard]] std::optional<Id> NextToStage(Model model) const;
  // One of the device's launches at a time.
  struct Slot {
    std::unique_ptr<Stream> stream;
    Run* run = nullptr;  // that computes there; null: free
  };
  [[nodiscard]] std::optional<Id> NextToLaunch();
  [[nodiscard]] Launchable LaunchableOf(const Run& run);
  [[nodiscard]] bool Computes(const DevicePlan& plan) const;
  void LaunchSome();
  void StageSome(Model model, const std::size_t& staged);
  bool Stage(Id id);
  // One input: where it is, and where it goes.
  struct InputBytes {
    DeviceRange to;
    std::span<const std::byte> from;
  };
  void CopyInputs(Id id, Run& run);
  void SendInputs(Id id, Run& run, const std::vector<InputBytes>& bytes);
  [[nodiscard]] StepGate GateOf(Run& run) const;
  void NoteGroups(Run& run, const Completion& completion) const;
  void Staged(Id id, const absl::Status& status);
  void Launch(Id id, Slot& slot);
  void Computed(Id id, const Completion& completion, std::vector<proto::TensorSpec> outputs);
  absl::Status CopyOutputs(Id id, Run& run);
  void SendOutputs(Id id, Run& run, const std::vector<std::size_t>& leaving);
  void Left(Id id, const absl::Status& status);
  void GiveUp(Id id, const absl::Status& status, proto::WorkerOutcome outcome = {});
  [[nodiscard]] Run* Find(Id id);
  std::unique_ptr<Run> Take(Id id);
  void Answer(std::unique_ptr<Run> run, absl::Status status, proto::WorkerOutcome outcome);
  void ReleaseModel(Run& run);
  [[nodiscard]] std::size_t StagedOf(const Run& run, bool ahead) const;
  void EnterStaging(const Run& run);
  void LeaveStaging(const Run& run);
  // runner_layers.cpp: runs whose weights come by layer.
  absl::Status AcceptByLayer(Run& run);
  void BeginLayers(Id id, Run& run);
  void LayersLanded(Id id, const absl::Status& status);
  [[nodiscard]] static bool LayersComing(Run& run, const absl::Status& why);
  // runner_memory.cpp
  void Promise(Bytes candidate = Bytes(0));
  absl::Status TakeMemory(Run& run);
  absl::Status TakeActivations(Id id, Run& run);
  void Reached(Id id, std::size_t step);
  void FreeActivations(Run& run);
  void FreeWindow(Run& run);
  void FreeBlock(Run& run);
  void FreeDevice(Run& run);

  DeviceMemory& memory_;
  TaskQueue& queue_;
  Lanes lanes_;
  const WorkerLimits& limits_;
  const LinkSharing sharing_;  // orders the runs, too
  DeviceLinks& links_;
  Residency& residency_;
  Preparer& preparer_;
  std::map<Id, std::unique_ptr<Run>> runs_;
  std::map<std::uint64_t, Id> by_sequence_;  // of the daemon that is there now
  std::set<std::pair<std::string, std::uint64_t>>
      known_arenas_;  // mapped before: reading from them does not block
  Id next_ = 1;
  RunQueue waiting_;
  RunQueue ready_;
  std::size_t staged_ = 0;        // staging or ready, the model there
  std::size_t staged_ahead_ = 0;  // the same, begun while the model was on its way
  std::map<std::pair<const DevicePlan*, bool>, std::size_t> staged_plans_;  // the same, by plan and `ahead`
  std::size_t on_device_ = 0;                                               // that hold device memory
  std::size_t layered_ = 0;                                                 // runs by layer
  std::multiset<Bytes> staged_activations_;
  RunNeeds needs_;
  ShareGate shares_;
  ComputeWatch watch_;
  bool advancing_ = false;
  bool again_ = false;
  std::uint64_t runs_done_ = 0;
  Bytes bytes_in_;
  Bytes bytes_out_;
  std::unique_ptr<Stream> in_;
  std::vector<Slot> slots_;  // as many as the device computes at a time
  std::unique_ptr<Stream> out_;
  TaskThread fetcher_;  // ends first: meets arenas for the first time
};

}  // namespace troupe::gpu

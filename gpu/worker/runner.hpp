// Executes runs: the inputs of a run come in while the runs before it compute, as many at a time as share the device;
// then its outputs leave.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gpu/worker/lanes.hpp"
#include "gpu/worker/launch_gate.hpp"
#include "gpu/worker/launch_slots.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/preparer.hpp"
#include "gpu/worker/residency.hpp"
#include "gpu/worker/run.hpp"
#include "gpu/worker/run_chooser.hpp"
#include "gpu/worker/run_copies.hpp"
#include "gpu/worker/run_memory.hpp"
#include "gpu/worker/run_table.hpp"
#include "gpu/worker/task_queue.hpp"
#include "gpu/worker/tensor_store.hpp"
#include "gpu/worker/worker_device.hpp"

namespace troupe::gpu {

// Takes each run through its stages. RunTable holds the runs, RunChooser says which is next, RunMemory has what
// they take of the device's memory; their tensors go through RunCopies, and they compute in LaunchSlots.
//
// Every run that was submitted is answered once, unless it was abandoned, and after the swap that brings its
// model. The main loop's thread; copies and launches end on the device's threads, which post back. Waiting runs
// are served by priority, then arrival,
// those first whose model, plan and inputs are there. A run whose model is on its way begins with the first
// group, when no other could compute: it may have to wait for the link between its steps. Which of those that
// could compute do so, and how many at a time, is LaunchGate's matter.
class Runner {
 public:
  Runner(WorkerDevice& device, TaskQueue& queue, Lanes lanes, const WorkerLimits& limits,
         Residency& residency, Preparer& preparer);
  ~Runner();

  // The request's inputs have been checked (CheckRunInputs).
  void Submit(RunRequest request, Reply reply);
  // A run that has not begun to compute answers CANCELLED; others go on.
  void Cancel(std::uint64_t sequence);
  // Runs that have not begun in time answer DEADLINE_EXCEEDED; a new window begins.
  void Expire(Time now);
  // When Expire has something to do.
  [[nodiscard]] Time NextDue() const { return std::min(runs_.NextExpiry(), gate_.next_turn()); }
  // What has not begun to compute is failed with `status`, what has goes on. Sequences begin anew.
  void FailAll(const absl::Status& status);
  // A model that runs wait for is there or on its way (OK), or will not be.
  void ModelChanged(const std::string& digest, const absl::Status& status);
  // Whether runs wait for this model (runs that hold it are known to the model table).
  [[nodiscard]] bool Wants(const std::string& digest) const;
  // A state has come, or will not come; or the next run may use it.
  void StatesChanged();
  // Brings the control page up to date.
  void ShowCompute(Time now) { slots_.Show(now); }
  [[nodiscard]] std::size_t in_flight() const { return runs_.size(); }
  [[nodiscard]] std::uint64_t runs_done() const { return runs_.done(); }
  [[nodiscard]] Bytes bytes_in() const { return copies_.bytes_in(); }    // of inputs
  [[nodiscard]] Bytes bytes_out() const { return copies_.bytes_out(); }  // of outputs

 private:
  absl::Status Accept(RunId id, Run& run);
  absl::Status FindPlan(RunId id, Run& run);
  void PlanHere(RunId id, const absl::StatusOr<std::shared_ptr<DevicePlan>>& plan);
  void InputsHere(RunId id, RunCopies::Inputs inputs);
  void Advance();
  void StageSome(ModelPlace place);
  bool Stage(RunId id);
  void Staged(RunId id, const absl::Status& status);
  void LaunchSome();
  void Reached(RunId id, std::size_t step);
  void Computed(RunId id, const Completion& completion, const std::vector<proto::TensorSpec>& outputs);
  void Left(RunId id, const absl::Status& status);
  void LayersLanded(RunId id, const absl::Status& status);
  void GiveUp(RunId id, const absl::Status& status, proto::WorkerOutcome outcome = {});
  void GiveUpAll(const std::vector<RunId>& ids, const absl::Status& status);
  std::unique_ptr<Run> Take(RunId id);
  void Answer(std::unique_ptr<Run> run, absl::Status status, proto::WorkerOutcome outcome);
  void ReleaseModel(Run& run);

  const WorkerLimits& limits_;
  const LinkSharing sharing_;  // orders the runs, too
  Residency& residency_;
  Preparer& preparer_;
  TensorStore& tensors_;
  RunTable runs_;
  RunMemory memory_;
  LaunchGate gate_;
  LaunchSlots slots_;
  RunCopies copies_;
  RunChooser chooser_;
  struct {
    bool under_way = false;
    bool again = false;  // what it started has called back
  } advance_;
};

}  // namespace troupe::gpu

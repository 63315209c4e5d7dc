// RUN MEMORY: what runs take of the device's memory: room for inputs and outputs when they are staged, for
// activations when they are launched. A staged run can always be launched: its memory is reserved.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gpu/memory/device_memory.hpp"
#include "gpu/worker/run.hpp"
#include "gpu/worker/run_needs.hpp"

namespace troupe::gpu {

//   waiting -(Take, Stage)-> staged -(TakeActivations, Unstage)-> computes -(FreeActivations)-> leaves -> Free
// A run that is staged while its model is on its way counts apart from those whose model is there. The main
// loop's thread.
class RunMemory {
 public:
  // `slots`: how many runs compute at a time. `plans`: how many plans there are at a time, about. `group`:
  // what the link carries well at a time. The device's memory outlives this one.
  RunMemory(DeviceMemory& memory, std::size_t slots, std::size_t plans, Bytes group)
      : memory_(memory), slots_(slots), group_(group), needs_(plans) {}

  // All that the run needs to be staged, and the promise of what it needs later; or nothing.
  absl::Status Take(Run& run);
  // The run is not staged after all.
  void GiveBack(Run& run);
  void Stage(const Run& run);
  void Unstage(const Run& run);
  // The run is about to compute: also the steps that it is to tell of.
  absl::Status TakeActivations(Run& run);
  // What only the steps before `step` used goes back, or is taken by weights that come.
  void Reached(Run& run, std::size_t step);
  void FreeActivations(Run& run);
  // Where the weights came and went.
  void FreeWindow(Run& run);
  void Free(Run& run);

  [[nodiscard]] std::size_t staged(bool ahead) const { return ahead ? staged_ahead_ : staged_; }
  // Staged runs of the same plan.
  [[nodiscard]] std::size_t StagedOf(const Run& run, bool ahead) const;
  // Runs hold memory that are neither staged nor ready.
  [[nodiscard]] bool SomeCompute() const { return on_device_ > staged_ + staged_ahead_; }
  [[nodiscard]] bool SomeHold() const { return on_device_ > 0; }
  [[nodiscard]] std::shared_ptr<const WeightWindow> WindowOf(const Run& run) {
    return needs_.WindowOf(run.plan, group_);
  }
  [[nodiscard]] RunNeeds& needs() { return needs_; }
  // What a run that does not fit answers.
  [[nodiscard]] proto::WorkerOutcome NoFit() const;

 private:
  void Promise(Bytes candidate = Bytes(0));

  DeviceMemory& memory_;
  const std::size_t slots_;
  const Bytes group_;
  RunNeeds needs_;
  std::size_t staged_ = 0;        // staging or ready, the model there
  std::size_t staged_ahead_ = 0;  // the same, begun while the model was on its way
  std::map<std::pair<const DevicePlan*, bool>, std::size_t> staged_plans_;  // the same, by plan and `ahead`
  std::multiset<Bytes> staged_activations_;
  std::vector<const Run*> computing_;  // that hold activations
  std::size_t on_device_ = 0;          // that hold device memory
};

}  // namespace troupe::gpu

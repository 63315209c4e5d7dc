// RUN MEMORY: what runs take of the device's memory: room for inputs and outputs when they are staged, for
// activations when they are launched. A staged run can always be launched: its memory is reserved. Tensors that are kept
// on the device make room for runs.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/memory/device_memory.hpp"
#include "gpu/worker/run.hpp"
#include "gpu/worker/run_needs.hpp"
#include "gpu/worker/tensor_store.hpp"

namespace troupe::gpu {

//   waiting -(Take, Stage)-> staged -(TakeActivations, Unstage)-> computes -(FreeActivations)-> leaves -> Free
// A run that is staged while its model is on its way counts apart from those whose model is there. The main
// loop's thread.
class RunMemory {
 public:
  // `percent`: what the runs that compute at a time take of the SMs together, at most. `plans`: how many plans
  // there are at a time, about. `group`: what the link carries well at a time. The device's memory outlives
  // this one.
  RunMemory(DeviceMemory& memory, TensorStore& tensors, std::uint32_t percent, std::size_t plans, Bytes group)
      : memory_(memory), tensors_(tensors), percent_(percent), group_(group), needs_(plans) {}

  // Whether its function's `gpu_mem` leaves room for the run beside the weights and the function's other runs.
  // FailedPrecondition: not even for this one alone.
  [[nodiscard]] absl::StatusOr<bool> FunctionHasRoom(const Run& run, Bytes weights) const;
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
  // `keeps`: the outputs that it was to leave on the device are there for others now.
  void Free(Run& run, bool keeps = false);

  // What staged runs will take of the SMs, in percent.
  [[nodiscard]] std::uint32_t staged_percent(bool ahead) const {
    return ahead ? staged_ahead_.percent : staged_.percent;
  }
  // The same of staged runs of one plan.
  [[nodiscard]] std::uint32_t StagedPercentOf(const Run& run, bool ahead) const;
  // Runs hold memory that are neither staged nor ready.
  [[nodiscard]] bool SomeCompute() const { return on_device_ > staged_.runs + staged_ahead_.runs; }
  [[nodiscard]] bool SomeHold() const { return on_device_ > 0; }
  [[nodiscard]] std::shared_ptr<const WeightWindow> WindowOf(const Run& run) {
    return needs_.WindowOf(run.plan, group_);
  }
  [[nodiscard]] RunNeeds& needs() { return needs_; }
  // What a run that does not fit answers.
  [[nodiscard]] proto::WorkerOutcome NoFit() const;

 private:
  struct Staged {
    std::size_t runs = 0;
    std::uint32_t percent = 0;
  };
  // Activations of a run, and what it takes of the SMs.
  struct Wish {
    Bytes activations;
    std::uint32_t percent = 100;
    auto operator<=>(const Wish&) const = default;
  };
  [[nodiscard]] static Wish WishOf(const Run& run);
  [[nodiscard]] static Bytes BytesOf(const Run& run);
  [[nodiscard]] absl::StatusOr<DeviceRange> Allocate(const Run& run, Bytes size);
  absl::Status TakeBlock(Run& run);
  void Promise() { Promise(Wish()); }
  void Promise(Wish candidate);

  DeviceMemory& memory_;
  TensorStore& tensors_;
  const std::uint32_t percent_;
  const Bytes group_;
  RunNeeds needs_;
  Staged staged_;        // staging or ready, the model there
  Staged staged_ahead_;  // the same, begun while the model was on its way
  std::map<std::pair<const DevicePlan*, bool>, Staged> staged_plans_;  // the same, by plan and `ahead`
  std::multiset<Wish> staged_wishes_;
  std::map<std::string, Bytes, std::less<>>
      of_functions_;                   // of staged runs and those behind, with activations
  std::vector<const Run*> computing_;  // that hold activations
  std::size_t on_device_ = 0;          // that hold device memory
};

}  // namespace troupe::gpu

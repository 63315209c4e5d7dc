// Plans of the virtual GPU: real ones compute with the engine's kernels, timed ones take the time that a
// profile says.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/device/compute_profile.hpp"
#include "gpu/device/compute_share.hpp"
#include "gpu/device/device.hpp"
#include "gpu/device/virtual_engine.hpp"
#include "gpu/engine/plan.hpp"

namespace troupe::gpu {

// Where a launch computes: its lane, and the engine that lanes share.
struct ComputeLane {
  VirtualEngine& engine;
  ComputeShare& share;
};

// What both kinds have in common. Runs on the thread of its lane.
class VirtualPlan : public DevicePlan {
 public:
  // Called before each step: waits for the gate and counts progress.
  using BeforeStep = std::function<absl::Status(std::size_t step)>;
  virtual absl::StatusOr<std::vector<proto::TensorSpec>> Run(const LaunchArguments& arguments,
                                                             const BeforeStep& before_step,
                                                             ComputeLane lane) = 0;

  [[nodiscard]] std::span<const proto::TensorSpec> inputs() const override { return inputs_; }
  [[nodiscard]] std::span<const proto::TensorSpec> outputs() const override { return outputs_; }
  [[nodiscard]] Bytes input_bytes(std::size_t i) const override { return input_bytes_[i]; }
  [[nodiscard]] Bytes output_bytes(std::size_t i) const override { return output_bytes_[i]; }
  [[nodiscard]] Bytes weights_bytes() const override { return weights_bytes_; }

 protected:
  // `inputs` in the model's order.
  absl::Status Describe(const proto::Model& model, std::vector<proto::TensorSpec> inputs,
                        std::vector<proto::TensorSpec> outputs);

 private:
  std::vector<proto::TensorSpec> inputs_;
  std::vector<proto::TensorSpec> outputs_;
  std::vector<Bytes> input_bytes_;
  std::vector<Bytes> output_bytes_;
  Bytes weights_bytes_;
};

// Plan::Build, or a fake of it in tests.
using PlanBuilder = std::function<absl::StatusOr<std::unique_ptr<Plan>>(
    const proto::Model& model, std::span<const std::byte> weights, std::span<const proto::TensorSpec> inputs,
    int threads)>;

// `saturation` is the part of the SMs beyond which the model is no faster. On a smaller part a run takes longer
// in proportion.
absl::StatusOr<std::shared_ptr<VirtualPlan>> MakeRealPlan(const proto::Model& model,
                                                          std::span<const std::byte> weights,
                                                          std::vector<proto::TensorSpec> inputs,
                                                          const PlanBuilder& builder, int threads,
                                                          double saturation);
// The time, which is what the run takes alone (on its share of the SMs), is spread evenly over the steps.
// Outputs are zero-filled; their shapes are the declared ones, an unknown first dimension being the first
// input's. InvalidArgument when other dimensions are unknown.
absl::StatusOr<std::shared_ptr<VirtualPlan>> MakeTimedPlan(const proto::Model& model,
                                                           std::vector<proto::TensorSpec> inputs,
                                                           const RunCost& cost);

// One launch as an operation of a lane of the compute engine.
[[nodiscard]] std::shared_ptr<VirtualOperation> MakeLaunch(std::shared_ptr<VirtualPlan> plan,
                                                           LaunchArguments arguments, ComputeShare& share,
                                                           OnLaunched done);

}  // namespace troupe::gpu

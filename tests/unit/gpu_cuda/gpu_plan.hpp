// A plan of a device in place of the CPU's: it copies everything to the device, runs, and copies the outputs
// back. It runs three times, each time with outputs that hold nothing: plainly, recorded and replayed.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "gpu/device/device.hpp"
#include "gpu/engine/plan.hpp"

namespace troupe::gpu::test {

class GpuPlan final : public Plan {
 public:
  // `stream`: on which it runs; null: one of its own. A device keeps the workspace that cuBLAS had on a stream.
  static absl::StatusOr<std::unique_ptr<Plan>> Make(Device& device, const proto::Model& model,
                                                    std::span<const std::byte> weights,
                                                    std::span<const proto::TensorSpec> inputs,
                                                    proto::Precision precision = proto::PRECISION_FP32,
                                                    std::shared_ptr<Stream> stream = nullptr) {
    auto made =
        std::make_unique<GpuPlan>(device, stream != nullptr ? std::move(stream) : device.MakeStream());
    TROUPE_ASSIGN_OR_RETURN(made->plan_, device.Prepare(model, weights, inputs, precision));
    made->outputs_.assign(made->plan_->outputs().begin(), made->plan_->outputs().end());
    return made;
  }
  GpuPlan(Device& device, std::shared_ptr<Stream> stream) : device_(device), stream_(std::move(stream)) {}

  // No value of the run is kept on the host.
  [[nodiscard]] Bytes activation_bytes() const override { return Bytes(0); }
  [[nodiscard]] std::span<const proto::TensorSpec> outputs() const override { return outputs_; }
  [[nodiscard]] Bytes output_bytes(std::size_t i) const override { return plan_->output_bytes(i); }
  [[nodiscard]] std::size_t step_count() const override { return plan_->step_count(); }
  [[nodiscard]] const StepWeights& step_weights(std::size_t) const override { return none_; }

  absl::StatusOr<std::vector<proto::TensorSpec>> Run(const PlanBindings& bindings) const override {
    Ranges ranges{device_};
    LaunchArguments arguments;
    TROUPE_ASSIGN_OR_RETURN(arguments.weights, ranges.Take(plan_->weights_bytes()));
    TROUPE_ASSIGN_OR_RETURN(arguments.activations, ranges.Take(plan_->activation_bytes()));
    stream_->CopyIn(arguments.weights, {bindings.weights, plan_->weights_bytes().count()}, nullptr);
    for (std::size_t i = 0; i < plan_->inputs().size(); ++i) {
      TROUPE_ASSIGN_OR_RETURN(const DeviceRange range, ranges.Take(plan_->input_bytes(i)));
      stream_->CopyIn(range, {bindings.inputs[i], range.size.count()}, nullptr);
      arguments.inputs.push_back(range);
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      TROUPE_ASSIGN_OR_RETURN(const DeviceRange range, ranges.Take(plan_->output_bytes(i)));
      arguments.outputs.push_back(range);
    }
    std::vector<std::byte> nothing;
    absl::Status status;
    for (int round = 0; round < 3 && status.ok(); ++round) {
      Spoil(arguments.outputs, nothing);
      status = stream_->Launch(plan_, arguments, nullptr)->Wait(kLongest);
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      stream_->CopyOut({bindings.outputs[i], output_bytes(i).count()}, arguments.outputs[i], nullptr);
    const EventPtr rest = stream_->CopyWithin(arguments.weights.Part(Bytes(0), Bytes(0)),
                                              arguments.weights.Part(Bytes(0), Bytes(0)), nullptr);
    TROUPE_RETURN_IF_ERROR(rest->Wait(kLongest));
    TROUPE_RETURN_IF_ERROR(status);
    return outputs_;
  }

 private:
  void Spoil(const std::vector<DeviceRange>& ranges, std::vector<std::byte>& nothing) const {
    // The buffer is made large enough for all before the first copy, since the copies read it later.
    std::size_t largest = nothing.size();
    for (const DeviceRange& range : ranges) largest = std::max<std::size_t>(largest, range.size.count());
    nothing.resize(largest, std::byte{0xFF});
    for (const DeviceRange& range : ranges) {
      (void)stream_->CopyIn(range, std::span(nothing).first(range.size.count()), nullptr);
    }
  }
  static constexpr Duration kLongest = std::chrono::minutes(2);
  // The ranges are freed with the run, behind all that uses them.
  struct Ranges {
    Device& device;
    std::vector<DeviceRange> taken;
    explicit Ranges(Device& owner) : device(owner) {}
    ~Ranges() {
      for (const DeviceRange& range : taken) device.Free(range);
    }
    absl::StatusOr<DeviceRange> Take(Bytes size) {
      TROUPE_ASSIGN_OR_RETURN(const DeviceRange range, device.Allocate(size));
      taken.push_back(range);
      return range;
    }
  };
  Device& device_;
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<DevicePlan> plan_;
  std::vector<proto::TensorSpec> outputs_;
  StepWeights none_;
};

}  // namespace troupe::gpu::test

// A plan that has only a need for memory.
#pragma once

#include <utility>
#include <vector>

#include "gpu/device/device.hpp"

namespace troupe::gpu::test {

class FakePlan final : public DevicePlan {
 public:
  using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  struct Step {
    Ranges weights;
    Bytes activations;
  };
  FakePlan(Bytes weights, std::vector<Step> steps) : weights_(weights), steps_(std::move(steps)) {}
  [[nodiscard]] std::span<const proto::TensorSpec> inputs() const override { return {}; }
  [[nodiscard]] std::span<const proto::TensorSpec> outputs() const override { return {}; }
  [[nodiscard]] Bytes input_bytes(std::size_t) const override { return {}; }
  [[nodiscard]] Bytes output_bytes(std::size_t) const override { return {}; }
  [[nodiscard]] Bytes weights_bytes() const override { return weights_; }
  [[nodiscard]] Bytes activation_bytes() const override {
    Bytes most;
    for (const Step& step : steps_) most = std::max(most, step.activations);
    return most;
  }
  [[nodiscard]] std::size_t step_count() const override { return steps_.size(); }
  [[nodiscard]] Bytes step_activations(std::size_t step) const override { return steps_[step].activations; }
  [[nodiscard]] std::span<const std::pair<std::uint64_t, std::uint64_t>> step_weights(
      std::size_t step) const override {
    return steps_[step].weights;
  }

 private:
  Bytes weights_;
  std::vector<Step> steps_;
};

}  // namespace troupe::gpu::test

// A model small enough to check by hand: y = Relu(x + w), x and y FP32 [N, 4].
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/engine/plan.hpp"
#include "proto/model.pb.h"

namespace troupe::gpu::test {

inline constexpr std::size_t kColumns = 4;

inline proto::TensorSpec Spec(const char* name, std::vector<std::int64_t> shape,
                              proto::DataType type = proto::FP32) {
  proto::TensorSpec spec;
  spec.set_name(name);
  spec.set_type(type);
  for (const std::int64_t dimension : shape) spec.add_shape(dimension);
  return spec;
}

inline proto::Model SmallModel() {
  proto::Model model;
  model.set_format_version(1);
  model.set_opset(13);
  model.set_name("small");
  *model.add_inputs() = Spec("x", {-1, kColumns});
  *model.add_outputs() = Spec("y", {-1, kColumns});
  auto* add = model.add_steps();
  add->set_op("Add");
  add->add_inputs("x");
  add->add_inputs("w");
  add->add_outputs("t");
  auto* relu = model.add_steps();
  relu->set_op("Relu");
  relu->add_inputs("t");
  relu->add_outputs("y");
  auto* weight = model.add_weights();
  weight->set_name("w");
  weight->set_type(proto::FP32);
  weight->add_shape(kColumns);
  weight->set_length(kColumns * sizeof(float));
  model.set_weights_bytes(64);
  return model;
}

inline std::vector<std::byte> SmallWeights(float first = 1) {
  std::vector<std::byte> bytes(64);
  const float values[kColumns] = {first, first + 1, first + 2, -100};
  std::memcpy(bytes.data(), values, sizeof(values));
  return bytes;
}

// The plan that the engine would make of the model, without the engine.
class FakePlan : public Plan {
 public:
  explicit FakePlan(std::int64_t rows) : rows_(rows), outputs_{Spec("y", {rows, kColumns})} {
    weights_.ranges = {{0, kColumns * sizeof(float)}};
  }
  [[nodiscard]] Bytes activation_bytes() const override { return Bytes(Count() * sizeof(float)); }
  [[nodiscard]] std::span<const proto::TensorSpec> outputs() const override { return outputs_; }
  [[nodiscard]] Bytes output_bytes(std::size_t) const override { return Bytes(Count() * sizeof(float)); }
  [[nodiscard]] std::size_t step_count() const override { return 2; }
  [[nodiscard]] const StepWeights& step_weights(std::size_t step) const override {
    return step == 0 ? weights_ : none_;
  }
  absl::StatusOr<std::vector<proto::TensorSpec>> Run(const PlanBindings& bindings) const override {
    const auto* x = reinterpret_cast<const float*>(bindings.inputs[0]);
    const auto* w = reinterpret_cast<const float*>(bindings.weights);
    auto* t = reinterpret_cast<float*>(bindings.activations);
    auto* y = reinterpret_cast<float*>(bindings.outputs[0]);
    if (absl::Status status = bindings.before_step(0); !status.ok()) return status;
    for (std::size_t i = 0; i < Count(); ++i) t[i] = x[i] + w[i % kColumns];
    if (absl::Status status = bindings.before_step(1); !status.ok()) return status;
    for (std::size_t i = 0; i < Count(); ++i) y[i] = t[i] > 0 ? t[i] : 0;
    return outputs_;
  }

 private:
  [[nodiscard]] std::size_t Count() const { return static_cast<std::size_t>(rows_) * kColumns; }
  std::int64_t rows_;
  std::vector<proto::TensorSpec> outputs_;
  StepWeights weights_;
  StepWeights none_;
};

inline absl::StatusOr<std::unique_ptr<Plan>> BuildFakePlan(const proto::Model&, std::span<const std::byte>,
                                                           std::span<const proto::TensorSpec> inputs, int) {
  return std::make_unique<FakePlan>(inputs[0].shape(0));
}

}  // namespace troupe::gpu::test

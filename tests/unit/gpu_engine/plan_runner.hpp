// Runs a plan on memory that belongs to the test: aligned, exactly as large as the plan says, and poisoned
// before each run; before each step it also poisons what the plan says is used no more.
#pragma once

#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.hpp"
#include "gpu/engine/plan.hpp"

namespace troupe::gpu {

struct AlignedDelete {
  void operator()(std::byte* data) const { ::operator delete[](data, std::align_val_t(64)); }
};
using AlignedBuffer = std::unique_ptr<std::byte[], AlignedDelete>;

inline AlignedBuffer MakeBuffer(std::size_t bytes, std::span<const std::byte> contents = {}) {
  AlignedBuffer buffer(
      static_cast<std::byte*>(::operator new[](bytes > 0 ? bytes : 1, std::align_val_t(64))));
  std::memset(buffer.get(), 0xFF,
              bytes);  // floats become NaN, so that a step that reads unwritten memory is found out
  if (!contents.empty()) std::memcpy(buffer.get(), contents.data(), contents.size());
  return buffer;
}

struct PlanResult {
  std::vector<proto::TensorSpec> specs;
  std::vector<std::vector<std::byte>> data;  // as many bytes as the spec has elements

  template <class T>
  [[nodiscard]] std::vector<T> As(std::size_t i) const {
    std::vector<T> values(data[i].size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), data[i].data(), values.size() * sizeof(T));
    return values;
  }
};

// Runs with `places` instead of one blob of weights, when there are some.
inline absl::StatusOr<PlanResult> RunPlan(Plan& plan, std::span<const std::byte> weights,
                                          const std::vector<std::span<const std::byte>>& inputs,
                                          std::function<absl::Status(std::size_t)> before_step = {},
                                          std::span<const WeightPlace> places = {}) {
  const AlignedBuffer blob = MakeBuffer(weights.size(), weights);
  const AlignedBuffer activations = MakeBuffer(plan.activation_bytes().count());
  std::vector<AlignedBuffer> memory;
  PlanBindings bindings;
  bindings.weights = places.empty() ? blob.get() : nullptr;
  bindings.places = places;
  bindings.activations = activations.get();
  bindings.before_step = [&, before_step = std::move(before_step)](std::size_t step) {
    const std::size_t extent = plan.activation_extent(step).count();
    std::memset(activations.get() + extent, 0xFF, plan.activation_bytes().count() - extent);
    return before_step ? before_step(step) : absl::OkStatus();
  };
  for (const auto& input : inputs) {
    bindings.input_bytes.emplace_back(input.size());
    bindings.inputs.push_back(memory.emplace_back(MakeBuffer(input.size(), input)).get());
  }
  for (std::size_t i = 0; i < plan.outputs().size(); ++i) {
    bindings.outputs.push_back(memory.emplace_back(MakeBuffer(plan.output_bytes(i).count())).get());
  }
  PlanResult result;
  TROUPE_ASSIGN_OR_RETURN(result.specs, plan.Run(bindings));
  for (std::size_t i = 0; i < result.specs.size(); ++i) {
    std::size_t bytes = ElementSize(result.specs[i].type());
    for (auto dim : result.specs[i].shape()) bytes *= static_cast<std::size_t>(dim);
    if (result.specs[i].type() == proto::BYTES) bytes = result.specs[i].text_bytes();
    result.data.emplace_back(bindings.outputs[i], bindings.outputs[i] + bytes);
  }
  return result;
}

}  // namespace troupe::gpu

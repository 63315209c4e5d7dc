// CUDA CHECK: what a CUDA GPU would refuse of an imported model, by the judgement that the plug-in makes its plans with
// (gpu/coverage). What only the GPU's libraries know is told there alone.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"

namespace troupe::gpu {

// A line for each operator and reason, with the first step that it is about: "Gelu 'a' and 11 more: no kernel of the GPU
// covers its approximation by tanh". Empty: every step has a kernel. `inputs` are concrete, and `weights` have at least the
// contents of tensors that decide shapes. An error says why no plan can be made for these inputs on any device.
[[nodiscard]] absl::StatusOr<std::vector<std::string>> CudaRefusals(
    const proto::Model& model, std::span<const std::byte> weights, std::span<const proto::TensorSpec> inputs);

}  // namespace troupe::gpu

// Plans of a GPU: a canonical model as a list of kernels for concrete shapes.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "gpu/cuda/gpu_kernel.hpp"
#include "gpu/device/device.hpp"

namespace troupe::gpu::cuda {

// `inputs` in the model's order. Unimplemented names the step that no kernel here covers.
absl::StatusOr<std::shared_ptr<DevicePlan>> MakePlan(Tools& tools, const proto::Model& model,
                                                     std::span<const std::byte> weights,
                                                     std::span<const proto::TensorSpec> inputs,
                                                     proto::Precision precision);

}  // namespace troupe::gpu::cuda

// COVERAGE: whether the kernels of a CUDA GPU cover a step. The plug-in asks before it makes a kernel, and
// `troupe-import --check` before a file is deployed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

// So many dimensions the GPU's own kernels count at most, beside those of size 1 that they leave out.
inline constexpr std::size_t kCudaDimensions = 8;
// Larger tensors are not moved in patterns that are worked out when a plan is made: so many elements at most.
inline constexpr std::int64_t kCudaMovedElements = std::int64_t{1} << 28;

// One step of a plan, for concrete shapes.
struct CudaStep {
  const StepContext& ctx;
  Infos in;
  Infos out;
};

// OK; or Unimplemented, "Conv 'c1': no kernel of the GPU covers <what>". Any other error says that the step is wrong.
[[nodiscard]] absl::Status CheckCudaCovers(const CudaStep& step);

// The operators that some kernel covers in some form, in alphabetical order.
[[nodiscard]] std::vector<std::string_view> CudaOperators();

}  // namespace troupe::gpu

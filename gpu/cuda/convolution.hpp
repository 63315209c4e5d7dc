// Conv by cuDNN.
#pragma once

#include "gpu/cuda/gpu_kernel.hpp"

namespace troupe::gpu::cuda {

// With what the importer fused into it: bias, a residual of the output's shape, an activation.
Made MakeConvolution(const GpuStep& step);

}  // namespace troupe::gpu::cuda

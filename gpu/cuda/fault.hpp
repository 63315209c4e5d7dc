// What a real GPU does wrong on purpose, for tests and tests/gpu/run.sh.
#pragma once

#include "absl/status/status.h"
#include "gpu/cuda/kernels.hpp"

namespace troupe::gpu::cuda {

// Whether TROUPE_CUDA_HANG=illegal-access says that a hang which is asked for is to be an illegal access.
// Hangs are asked for only of workers with --allow-faults.
[[nodiscard]] bool HangIsIllegalAccess();

// A kernel that reads where nothing is: the driver gives up the context, and with it the GPU for this
// process. Answers what the driver said; OK would mean that it did not notice.
absl::Status AccessIllegally(Context& context, const Kernels& kernels);

}  // namespace troupe::gpu::cuda

// STEP KERNEL: inference and kernels of steps whose shapes or shape-like inputs are known only at run time.
//
// What stands behind a data-dependent operator (NonMaxSuppression, NonZero, a Reshape to a computed shape) is
// planned for an upper bound. When such a step runs, its real inputs are all there, so it is inferred and
// made anew for them: every operator works on bounded inputs without knowing of it. This allocates, and only
// these steps do.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

// entry.infer, and what follows from bounded inputs: their consumers' outputs are bounded too.
[[nodiscard]] absl::StatusOr<std::vector<ValueInfo>> InferStep(const Operator& entry, const StepContext& ctx,
                                                               std::span<const ValueInfo> in);

// entry.make where everything is known; else a kernel that makes itself at run time, within the planned
// bounds.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Kernel>> MakeStepKernel(const Operator& entry,
                                                                     const StepContext& ctx,
                                                                     std::span<const ValueInfo> in,
                                                                     std::span<const ValueInfo> out);

}  // namespace troupe::gpu

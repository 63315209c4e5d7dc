// Runs one step at import time with the kernel that would run it later.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/import/graph.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

[[nodiscard]] ValueInfo InfoOf(const Constant& constant);

// What the operator infers, checked: one entry per output of the step at least, each with a type and a shape.
[[nodiscard]] absl::StatusOr<std::vector<ValueInfo>> Infer(const StepContext& context,
                                                           std::span<const ValueInfo> in);

// `out` is what Infer returned. Inputs need their contents, except where the operator reads shapes only.
[[nodiscard]] absl::StatusOr<std::vector<Constant>> Evaluate(const StepContext& context,
                                                             std::span<const ValueInfo> in,
                                                             std::span<const ValueInfo> out);

}  // namespace troupe::gpu

// FP32 arithmetic rows for this machine's vector instructions.
#pragma once

#include <string_view>

#include "gpu/ops/broadcast_loop.hpp"

namespace troupe::gpu {

// Add, Sub, Mul, Div, Max, Min, PRelu, Pow; null for any other.
[[nodiscard]] RowFunction FindVectorArithmeticRow(std::string_view op);

}  // namespace troupe::gpu

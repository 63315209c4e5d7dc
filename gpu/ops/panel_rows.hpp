// The loop that a product of one row with a matrix spends its time in.
#pragma once

#include <cstdint>

namespace troupe::gpu {

inline constexpr std::int64_t kPanelColumns = 64;

// out[j] = sum over k of x[k] * panel[k][j], for the 64 columns of one panel of `depth` rows.
using MultiplyPanel = void (*)(const float* x, const float* panel, std::int64_t depth, float* out);
// The best that this processor has.
[[nodiscard]] MultiplyPanel FindMultiplyPanel();

}  // namespace troupe::gpu

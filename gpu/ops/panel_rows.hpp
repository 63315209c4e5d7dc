// The loops that a product of one row with a matrix spends its time in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::gpu {

inline constexpr std::int64_t kPanelColumns = 64;

// out[j] = sum over k of x[k] * panel[k][j], for the 64 columns of one panel of `depth` rows: of FP32, or of BF16 with the
// elements of two rows in turn, for which the depth is even. Sums are FP32.
using MultiplyPanel = void (*)(const float* x, const std::byte* panel, std::int64_t depth, float* out);
// The best that this processor has.
[[nodiscard]] MultiplyPanel FindMultiplyPanel(bool bf16);

}  // namespace troupe::gpu

// The loops that MatMulNBits spends its time in: one row of packed weights becomes floats, and meets rows of the input.
#pragma once

#include <cstdint>

namespace troupe::gpu {

struct BlockLoops {
  // out[i] = (quantised[i] - zero) * scale, for `count` numbers of 4 bits (the lower half of a byte first) or of 8.
  void (*unpack4)(const std::uint8_t* packed, std::int64_t count, float scale, float zero, float* out);
  void (*unpack8)(const std::uint8_t* packed, std::int64_t count, float scale, float zero, float* out);
  // out[r * out_stride] = the product of row r of `a` (`k` elements each) with `weights`, plus `bias`
  void (*multiply)(const float* a, std::int64_t rows, std::int64_t k, const float* weights, float bias,
                   float* out, std::int64_t out_stride);
};

// The best that this processor has.
[[nodiscard]] BlockLoops FindBlockLoops();

}  // namespace troupe::gpu

// The loops that MatMulNBits spends its time in. Blocks have 16 to 256 numbers; of 4 bits, two share a byte. Those in the
// lower halves of a block's bytes come first here, then those in the upper ones, so that neighbours stay neighbours; rows
// that meet them are arranged alike.
#pragma once

#include <cstdint>

namespace troupe::gpu {

// Blocks that follow one another, each with a scale and a zero point of its own.
struct PackedBlocks {
  const std::uint8_t* packed = nullptr;
  const float* scales = nullptr;
  const float* zeros = nullptr;
  std::int64_t blocks = 0;
  std::int64_t block = 0;  // numbers in one
};

// For numbers of one width in bits.
struct BlockLoops {
  // out[i] = (number[i] - zero) * scale
  void (*unpack)(const PackedBlocks& blocks, float* out);
  // The product of these numbers with `row`, which has as many.
  float (*multiply)(const PackedBlocks& blocks, const float* row);
};

// The best that this processor has; `bits`: 4 or 8.
[[nodiscard]] BlockLoops FindBlockLoops(std::int64_t bits);

}  // namespace troupe::gpu

// What the tensor cores round their operands to before they multiply them; sums stay as they are.
#pragma once

#include <bit>
#include <cstdint>

#include "gpu/cuda/kernels/numbers.hpp"

namespace troupe::gpu::cuda::fake {

enum class Rounding { kNone, kTf32, kBf16, kFp16 };

// To the nearest, halves to even, with that many bits of the fraction less; infinities stay.
inline float WithoutBits(float x, int bits) {
  auto word = std::bit_cast<std::uint32_t>(x);
  if ((word & 0x7f800000U) == 0x7f800000U) return x;
  const std::uint32_t half = (1U << (bits - 1)) - 1 + ((word >> bits) & 1U);
  word = (word + half) & ~((1U << bits) - 1);
  return std::bit_cast<float>(word);
}

inline float Rounded(Rounding rounding, float x) {
  switch (rounding) {
    case Rounding::kTf32:
      return WithoutBits(x, 13);
    case Rounding::kBf16:
      return WithoutBits(x, 16);
    case Rounding::kFp16:
      return HalfToFloat(FloatToHalf(x));
    case Rounding::kNone:
      break;
  }
  return x;
}

}  // namespace troupe::gpu::cuda::fake

// Elementary functions on float that a compiler turns into vector code: no calls, no branches, no tables.
// Errors are a few units in the last place; NaN stays NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "gpu/ops/vector_targets.hpp"

namespace troupe::gpu {

TROUPE_INLINE float FastExp(float x) {
  x = x > 89.0F ? 89.0F : x;
  x = x < -104.0F ? -104.0F : x;
  // Adding and taking away 1.5 * 2^23 rounds to the nearest integer, which then stands in the low bits.
  constexpr float kMagic = 12582912.0F;
  const float shifted = x * 1.44269504088896341F + kMagic;
  const float n = shifted - kMagic;
  float r = x - n * 0.693359375F;
  r = r + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  // 2^n in two factors, since n reaches from the subnormals to one beyond the largest exponent.
  const auto bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - 0x4b400000U);
  const std::int32_t half = bits >> 1;
  const float low = std::bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23);
  const float high = std::bit_cast<float>(static_cast<std::uint32_t>(bits - half + 127) << 23);
  return p * low * high;
}

TROUPE_INLINE float FastSigmoid(float x) {
  return 1.0F / (1.0F + FastExp(-x));
}

// Rational approximation over the range where tanh differs from +-1 in float.
TROUPE_INLINE float FastTanh(float x) {
  const float y = x > 7.9053111F ? 7.9053111F : (x < -7.9053111F ? -7.9053111F : x);
  const float z = y * y;
  float p = -2.76076847742355e-16F;
  p = p * z + 2.00018790482477e-13F;
  p = p * z + -8.60467152213735e-11F;
  p = p * z + 5.12229709037114e-08F;
  p = p * z + 1.48572235717979e-05F;
  p = p * z + 6.37261928875436e-04F;
  p = p * z + 4.89352455891786e-03F;
  float q = 1.19825839466702e-06F;
  q = q * z + 1.18534705686654e-04F;
  q = q * z + 2.26843463243900e-03F;
  q = q * z + 4.89352518554385e-03F;
  const float ratio = y * p / q;
  return std::fabs(x) < 0.0004F ? x : ratio;
}

// Rational approximation over [-4, 4]; beyond it erf is +-1 in float.
TROUPE_INLINE float FastErf(float x) {
  const float y = x > 4.0F ? 4.0F : (x < -4.0F ? -4.0F : x);
  const float z = y * y;
  float p = -2.72614225801306e-10F;
  p = p * z + 2.77068142495902e-08F;
  p = p * z + -2.10102402082508e-06F;
  p = p * z + -5.69250639462346e-05F;
  p = p * z + -7.34990630326855e-04F;
  p = p * z + -2.95459980854025e-03F;
  p = p * z + -1.60960333262415e-02F;
  float q = -1.45660718464996e-05F;
  q = q * z + -2.13374055278905e-04F;
  q = q * z + -1.68282697438203e-03F;
  q = q * z + -7.37332916720468e-03F;
  q = q * z + -1.42647390514189e-02F;
  return y * p / q;
}

TROUPE_INLINE float FastGelu(float x) {
  return 0.5F * x * (1.0F + FastErf(x * 0.70710678118654752F));
}

}  // namespace troupe::gpu

// Compiled with its own flags (CMakeLists.txt): sums may be reordered, so that they become vector instructions.
#include "gpu/ops/block_rows.hpp"

#define TROUPE_INLINE [[gnu::always_inline]] inline

namespace troupe::gpu {
namespace {

TROUPE_INLINE void Unpack4Body(const std::uint8_t* packed, std::int64_t count, float scale, float zero,
                               float* out) {
  const std::int64_t pairs = count / 2;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < pairs; ++i) {
    const int both = packed[i];
    out[2 * i] = (static_cast<float>(both & 15) - zero) * scale;
    out[2 * i + 1] = (static_cast<float>(both >> 4) - zero) * scale;
  }
  if (count % 2 != 0) out[count - 1] = (static_cast<float>(packed[pairs] & 15) - zero) * scale;
}

TROUPE_INLINE void Unpack8Body(const std::uint8_t* packed, std::int64_t count, float scale, float zero,
                               float* out) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) out[i] = (static_cast<float>(packed[i]) - zero) * scale;
}

// Four rows at a time: each weight is loaded once for four products.
TROUPE_INLINE void MultiplyBody(const float* a, std::int64_t rows, std::int64_t k, const float* weights,
                                float bias, float* out, std::int64_t out_stride) {
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float* const first = a + r * k;
    const float* const second = first + k;
    const float* const third = second + k;
    const float* const fourth = third + k;
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      const float w = weights[i];
      s0 += first[i] * w;
      s1 += second[i] * w;
      s2 += third[i] * w;
      s3 += fourth[i] * w;
    }
    out[r * out_stride] = s0 + bias;
    out[(r + 1) * out_stride] = s1 + bias;
    out[(r + 2) * out_stride] = s2 + bias;
    out[(r + 3) * out_stride] = s3 + bias;
  }
  for (; r < rows; ++r) {
    const float* const row = a + r * k;
    float sum = 0;
    for (std::int64_t i = 0; i < k; ++i) sum += row[i] * weights[i];
    out[r * out_stride] = sum + bias;
  }
}

#define TROUPE_BLOCK_LOOPS(Name, target)                                                              \
  target void Name##Unpack4(const std::uint8_t* packed, std::int64_t count, float scale, float zero,  \
                            float* out) {                                                             \
    Unpack4Body(packed, count, scale, zero, out);                                                     \
  }                                                                                                   \
  target void Name##Unpack8(const std::uint8_t* packed, std::int64_t count, float scale, float zero,  \
                            float* out) {                                                             \
    Unpack8Body(packed, count, scale, zero, out);                                                     \
  }                                                                                                   \
  target void Name##Multiply(const float* a, std::int64_t rows, std::int64_t k, const float* weights, \
                             float bias, float* out, std::int64_t out_stride) {                       \
    MultiplyBody(a, rows, k, weights, bias, out, out_stride);                                         \
  }
TROUPE_BLOCK_LOOPS(Plain, )
#if defined(__x86_64__)
#define TROUPE_AVX512 [[gnu::target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")]]
TROUPE_BLOCK_LOOPS(Avx2, [[gnu::target("avx2,fma")]])
TROUPE_BLOCK_LOOPS(Avx512, TROUPE_AVX512)
#undef TROUPE_AVX512
#endif
#undef TROUPE_BLOCK_LOOPS

}  // namespace

BlockLoops FindBlockLoops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return {&Avx512Unpack4, &Avx512Unpack8, &Avx512Multiply};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {&Avx2Unpack4, &Avx2Unpack8, &Avx2Multiply};
#endif
  return {&PlainUnpack4, &PlainUnpack8, &PlainMultiply};
}

}  // namespace troupe::gpu

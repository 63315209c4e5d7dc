// Compiled with its own flags (CMakeLists.txt): sums may be reordered, so that they become vector
// instructions.
#include "gpu/ops/layer_norm_rows.hpp"

#include <cmath>

#define TROUPE_INLINE [[gnu::always_inline]] inline

namespace troupe::gpu {
namespace {

TROUPE_INLINE void Normalize(LayerNormRow<float>& row) {
  const std::int64_t n = row.n;
  const float* in = row.in;
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += in[i];
  const float mean = sum / static_cast<float>(n);
  float squares = 0;
  for (std::int64_t i = 0; i < n; ++i) squares += (in[i] - mean) * (in[i] - mean);
  const float inverse = 1.0F / __builtin_sqrtf(squares / static_cast<float>(n) + row.epsilon);
  const float* scale = row.scale;
  const float* bias = row.bias;
  float* out = row.out;
  if (bias != nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) out[i] = (in[i] - mean) * inverse * scale[i] + bias[i];
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) out[i] = (in[i] - mean) * inverse * scale[i];
  }
  row.mean = mean;
  row.inverse = inverse;
}

void Plain(LayerNormRow<float>& row) {
  Normalize(row);
}
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void Avx2(LayerNormRow<float>& row) {
  Normalize(row);
}
[[gnu::target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")]] void Avx512(
    LayerNormRow<float>& row) {
  Normalize(row);
}
#endif

}  // namespace

LayerNormFunction FindLayerNormRow() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return &Avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &Avx2;
#endif
  return &Plain;
}

}  // namespace troupe::gpu

// Compiled with its own flags (CMakeLists.txt): sums may be reordered, so that they become vector instructions.
#include "gpu/ops/attention_rows.hpp"

#define TROUPE_INLINE [[gnu::always_inline]] inline

namespace troupe::gpu {
namespace {

template <class T>
TROUPE_INLINE void ScoreBody(const AttentionRows<T>& rows, const T* query, T scale, T* out) {
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const T* row = rows.first + i * rows.stride;
    T sum = 0;
    for (std::int64_t j = 0; j < rows.length; ++j) sum += query[j] * row[j];
    out[i] = sum * scale;
  }
}

template <class T>
TROUPE_INLINE void MixBody(const AttentionRows<T>& rows, const T* weights, T* out) {
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const T* row = rows.first + i * rows.stride;
    const T weight = weights[i];
#pragma GCC ivdep
    for (std::int64_t j = 0; j < rows.length; ++j) out[j] += weight * row[j];
  }
}

template <class T>
void PlainScore(const AttentionRows<T>& rows, const T* query, T scale, T* out) {
  ScoreBody(rows, query, scale, out);
}
template <class T>
void PlainMix(const AttentionRows<T>& rows, const T* weights, T* out) {
  MixBody(rows, weights, out);
}
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void Avx2Score(const AttentionRows<float>& rows, const float* query, float scale,
                                           float* out) {
  ScoreBody(rows, query, scale, out);
}
[[gnu::target("avx2,fma")]] void Avx2Mix(const AttentionRows<float>& rows, const float* weights, float* out) {
  MixBody(rows, weights, out);
}
#endif

}  // namespace

AttentionLoops<float> FindAttentionLoops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {&Avx2Score, &Avx2Mix};
#endif
  return {&PlainScore<float>, &PlainMix<float>};
}

AttentionLoops<double> FindDoubleAttentionLoops() {
  return {&PlainScore<double>, &PlainMix<double>};
}

}  // namespace troupe::gpu

// The two loops that Attention spends its time in, for one query.
#pragma once

#include <cstdint>

namespace troupe::gpu {

// `count` rows of `length` elements, `stride` elements apart.
template <class T>
struct AttentionRows {
  const T* first = nullptr;
  std::int64_t count = 0;
  std::int64_t stride = 0;
  std::int64_t length = 0;
};

template <class T>
struct AttentionLoops {
  // out[i] = scale * (query . rows[i])
  void (*score)(const AttentionRows<T>& rows, const T* query, T scale, T* out);
  // out[j] += sum over i of weights[i] * rows[i][j]
  void (*mix)(const AttentionRows<T>& rows, const T* weights, T* out);
};

// The best that this processor has.
[[nodiscard]] AttentionLoops<float> FindAttentionLoops();
[[nodiscard]] AttentionLoops<double> FindDoubleAttentionLoops();

}  // namespace troupe::gpu

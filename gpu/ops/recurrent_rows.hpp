// The loop that LSTM, GRU and RNN spend their time in.
#pragma once

#include <cstdint>

namespace troupe::gpu {

// Products of vectors with the rows of a matrix, which are added to what is in `out`: out[v][r] += x[v] . w[r].
struct RowProducts {
  const float* w = nullptr;  // `rows` rows of `length`, one behind the other
  std::int64_t rows = 0;
  std::int64_t length = 0;
  const float* x = nullptr;  // `vectors` vectors of `length`, `x_stride` elements apart
  std::int64_t vectors = 0;
  std::int64_t x_stride = 0;
  float* out = nullptr;  // `rows` sums for each vector, `out_stride` elements apart
  std::int64_t out_stride = 0;
};

using MultiplyRows = void (*)(const RowProducts& products);
// The best that this processor has.
[[nodiscard]] MultiplyRows FindMultiplyRows();

}  // namespace troupe::gpu

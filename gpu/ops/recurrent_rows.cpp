// Compiled with its own flags (CMakeLists.txt): sums may be reordered, so that they become vector instructions.
#include "gpu/ops/recurrent_rows.hpp"

#include "gpu/ops/vector_targets.hpp"

namespace troupe::gpu {
namespace {

// A block of sums is kept in registers: four rows share what is read of a vector, and two vectors what is read of a row.
constexpr std::int64_t kRows = 4;
constexpr std::int64_t kVectors = 2;

template <std::int64_t kV>
TROUPE_INLINE void Block(const RowProducts& p, std::int64_t row, std::int64_t vector) {
  const std::int64_t n = p.length;
  const float* w = p.w + row * n;
  const float* x = p.x + vector * p.x_stride;
  const float* next = kV > 1 ? x + p.x_stride : x;
  float a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    a0 += x[i] * w[i];
    a1 += x[i] * w[n + i];
    a2 += x[i] * w[2 * n + i];
    a3 += x[i] * w[3 * n + i];
    if constexpr (kV > 1) {
      b0 += next[i] * w[i];
      b1 += next[i] * w[n + i];
      b2 += next[i] * w[2 * n + i];
      b3 += next[i] * w[3 * n + i];
    }
  }
  float* out = p.out + vector * p.out_stride + row;
  out[0] += a0;
  out[1] += a1;
  out[2] += a2;
  out[3] += a3;
  if constexpr (kV > 1) {
    out += p.out_stride;
    out[0] += b0;
    out[1] += b1;
    out[2] += b2;
    out[3] += b3;
  }
}

struct MultiplyBody {
  TROUPE_INLINE static void Run(const RowProducts& p) {
    std::int64_t row = 0;
    for (; row + kRows <= p.rows; row += kRows) {
      std::int64_t vector = 0;
      for (; vector + kVectors <= p.vectors; vector += kVectors) Block<kVectors>(p, row, vector);
      if (vector < p.vectors) Block<1>(p, row, vector);
    }
    for (; row < p.rows; ++row) {
      for (std::int64_t vector = 0; vector < p.vectors; ++vector) {
        float sum = 0;
        for (std::int64_t i = 0; i < p.length; ++i)
          sum += p.x[vector * p.x_stride + i] * p.w[row * p.length + i];
        p.out[vector * p.out_stride + row] += sum;
      }
    }
  }
};

}  // namespace

MultiplyRows FindMultiplyRows() {
  return BestOf<MultiplyBody, const RowProducts&>();
}

}  // namespace troupe::gpu

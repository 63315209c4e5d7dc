// A product of matrices as cuBLAS' manual defines it, on the host: columns first.
#pragma once

#include <cublas_v2.h>

#include <cstdint>

#include "gpu/cuda/fake/rounding.hpp"

namespace troupe::gpu::cuda::fake {

// What a compute type for matrices in FP32 rounds to; false for a type that is not one.
inline bool RoundingOf(cublasComputeType_t type, Rounding& rounding) {
  switch (type) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      rounding = Rounding::kNone;
      return true;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      rounding = Rounding::kTf32;
      return true;
    case CUBLAS_COMPUTE_32F_FAST_16BF:
      rounding = Rounding::kBf16;
      return true;
    case CUBLAS_COMPUTE_32F_FAST_16F:
      rounding = Rounding::kFp16;
      return true;
    default:
      return false;
  }
}

struct Product {
  bool transpose_a, transpose_b;
  std::int64_t m, n, k;
  float alpha, beta;
  const float* a;
  const float* b;
  float* c;
  std::int64_t lda, ldb, ldc;
  long long stride_a, stride_b, stride_c;
  std::int64_t batch;
  Rounding rounding;
  // Of each row, and what comes last.
  const float* bias = nullptr;
  bool relu = false;

  void Run() const {
    for (std::int64_t i = 0; i < batch; ++i) RunOne(a + i * stride_a, b + i * stride_b, c + i * stride_c);
  }
  void RunOne(const float* one, const float* other, float* out) const {
    for (std::int64_t column = 0; column < n; ++column) {
      for (std::int64_t row = 0; row < m; ++row) {
        double sum = 0;
        for (std::int64_t i = 0; i < k; ++i) {
          const float x = transpose_a ? one[row * lda + i] : one[i * lda + row];
          const float y = transpose_b ? other[i * ldb + column] : other[column * ldb + i];
          sum += static_cast<double>(Rounded(rounding, x)) * static_cast<double>(Rounded(rounding, y));
        }
        float& to = out[column * ldc + row];
        to = alpha * static_cast<float>(sum) + (beta == 0 ? 0.0F : beta * to);
        if (bias != nullptr) to += bias[row];
        if (relu && to < 0) to = 0;
      }
    }
  }
};

}  // namespace troupe::gpu::cuda::fake

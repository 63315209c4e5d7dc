// cuBLAS's product of matrices as its manual defines it, on the host and in the order of its stream.
#include <cublas_v2.h>

#include "gpu/cuda/fake/fake_driver.hpp"

namespace {

struct Handle {
  CUstream stream = nullptr;
};

Handle& HandleOf(cublasHandle_t handle) {
  return *reinterpret_cast<Handle*>(handle);
}

// Columns first, as cuBLAS has them.
struct Job {
  bool transpose_a, transpose_b;
  int m, n, k;
  float alpha, beta;
  const float* a;
  const float* b;
  float* c;
  int lda, ldb, ldc;
  long long stride_a, stride_b, stride_c;
  int batch;

  void Run() const {
    for (int i = 0; i < batch; ++i) RunOne(a + i * stride_a, b + i * stride_b, c + i * stride_c);
  }
  void RunOne(const float* one, const float* other, float* out) const {
    for (int column = 0; column < n; ++column) {
      for (int row = 0; row < m; ++row) {
        double sum = 0;
        for (int i = 0; i < k; ++i) {
          const float x = transpose_a ? one[row * static_cast<long long>(lda) + i]
                                      : one[i * static_cast<long long>(lda) + row];
          const float y = transpose_b ? other[i * static_cast<long long>(ldb) + column]
                                      : other[column * static_cast<long long>(ldb) + i];
          sum += static_cast<double>(x) * static_cast<double>(y);
        }
        float& to = out[column * static_cast<long long>(ldc) + row];
        to = alpha * static_cast<float>(sum) + (beta == 0 ? 0.0F : beta * to);
      }
    }
  }
};

}  // namespace

extern "C" {

cublasStatus_t CUBLASWINAPI cublasCreate(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasDestroy(cublasHandle_t handle) {
  delete &HandleOf(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  HandleOf(handle).stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasSetMathMode(cublasHandle_t, cublasMath_t mode) {
  return mode == CUBLAS_TF32_TENSOR_OP_MATH ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a,
                                                      cublasOperation_t op_b, int m, int n, int k,
                                                      const float* alpha, const float* a, int lda,
                                                      long long stride_a, const float* b, int ldb,
                                                      long long stride_b, const float* beta, float* c,
                                                      int ldc, long long stride_c, int batch) {
  const bool transpose_a = op_a != CUBLAS_OP_N;
  const bool transpose_b = op_b != CUBLAS_OP_N;
  if (lda < (transpose_a ? k : m) || ldb < (transpose_b ? n : k) || ldc < m || batch < 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  const Job job{transpose_a, transpose_b, m,   n,   k,        *alpha,   *beta,    a,    b,
                c,           lda,         ldb, ldc, stride_a, stride_b, stride_c, batch};
  troupe::gpu::cuda::fake::QueueOf(HandleOf(handle).stream).Push([job] { job.Run(); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

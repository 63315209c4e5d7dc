// cuBLAS's product of matrices as its manual defines it, on the host and in the order of its stream.
#include <cublas_v2.h>

#include <cstdint>

#include "gpu/cuda/fake/fake_driver.hpp"
#include "gpu/cuda/fake/product.hpp"

namespace fake = troupe::gpu::cuda::fake;

namespace {

struct Handle {
  CUcontext context = nullptr;  // that was current when it was made
  CUstream stream = nullptr;
  void* workspace = nullptr;
  int sms = 0;  // that it was told; 0: all
};

// Stands for the kernels of the library, which are loaded when they are needed first.
const char kCode[2][2] = {};

Handle& HandleOf(cublasHandle_t handle) {
  return *reinterpret_cast<Handle*>(handle);
}

}  // namespace

extern "C" {

std::uint32_t FakeCudaSmsOf(CUstream stream);  // the fake driver's

cublasStatus_t CUBLASWINAPI cublasGetProperty(libraryPropertyType type, int* value) {
  *value = type == MAJOR_VERSION ? static_cast<int>(fake::TheState().config.cublas) : 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasCreate(cublasHandle_t* handle) {
  if (fake::Current() == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (fake::Synchronise() != CUDA_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED;  // it takes memory
  *handle = reinterpret_cast<cublasHandle_t>(new Handle{fake::Current()});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasDestroy(cublasHandle_t handle) {
  if (fake::Synchronise() != CUDA_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete &HandleOf(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  HandleOf(handle).stream = stream;
  HandleOf(handle).workspace = nullptr;  // it was the other stream's
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasSetWorkspace(cublasHandle_t handle, void* workspace, std::size_t) {
  HandleOf(handle).workspace = workspace;
  return reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0 ? CUBLAS_STATUS_SUCCESS
                                                                : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t CUBLASWINAPI cublasSetSmCountTarget(cublasHandle_t handle, int sms) {
  HandleOf(handle).sms = sms;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasSetMathMode(cublasHandle_t, cublasMath_t mode) {
  return mode == CUBLAS_TF32_TENSOR_OP_MATH ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, std::int64_t m, std::int64_t n,
    std::int64_t k, const void* alpha, const void* a, cudaDataType a_type, std::int64_t lda,
    long long stride_a, const void* b, cudaDataType b_type, std::int64_t ldb, long long stride_b,
    const void* beta, void* c, cudaDataType c_type, std::int64_t ldc, long long stride_c, std::int64_t batch,
    cublasComputeType_t type, cublasGemmAlgo_t) {
  const bool transpose_a = op_a != CUBLAS_OP_N;
  const bool transpose_b = op_b != CUBLAS_OP_N;
  if (lda < (transpose_a ? k : m) || ldb < (transpose_b ? n : k) || ldc < m || batch < 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  // A product with fewer SMs than cuBLAS was told waits for the missing ones: no caller here intends that.
  const Handle& used = HandleOf(handle);
  if (used.stream != nullptr && fake::QueueOf(used.stream).context() != used.context)
    return CUBLAS_STATUS_EXECUTION_FAILED;
  const std::uint32_t planned = used.sms == 0 ? FakeCudaSmsOf(nullptr) : static_cast<std::uint32_t>(used.sms);
  if (planned != FakeCudaSmsOf(used.stream)) return CUBLAS_STATUS_INVALID_VALUE;
  fake::Rounding rounding{};
  if (a_type != CUDA_R_32F || b_type != CUDA_R_32F || c_type != CUDA_R_32F ||
      !fake::RoundingOf(type, rounding))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // Without a workspace it would take one of its own.
  if (HandleOf(handle).workspace == nullptr && fake::QueueOf(HandleOf(handle).stream).capturing())
    return CUBLAS_STATUS_ALLOC_FAILED;
  const fake::Product job{transpose_a,
                          transpose_b,
                          m,
                          n,
                          k,
                          *static_cast<const float*>(alpha),
                          *static_cast<const float*>(beta),
                          static_cast<const float*>(a),
                          static_cast<const float*>(b),
                          static_cast<float*>(c),
                          lda,
                          ldb,
                          ldc,
                          stride_a,
                          stride_b,
                          stride_c,
                          batch,
                          rounding,
                          nullptr,
                          false};
  fake::Load(&kCode[transpose_a ? 1 : 0][transpose_b ? 1 : 0], fake::QueueOf(used.stream).capturing());
  fake::CountBurst(used.stream);
  fake::QueueOf(used.stream).Push([job] { job.Run(); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

// A product of matrices with what comes behind it in one: bias per column and Relu, by cuBLASLt. Where there
// is no cuBLASLt, or it has no algorithm, cuBLAS multiplies and a kernel of our own does the rest
// (ops/matrix.cpp).
#pragma once

#include <cublasLt.h>

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "gpu/cuda/libraries.hpp"

namespace troupe::gpu::cuda {

// out = alpha A B + beta out, for `batch` products; matrices are row-major, [m,k] or, transposed, [k,m].
struct Product3 {
  std::int64_t m = 1;
  std::int64_t n = 1;
  std::int64_t k = 1;
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1;
  float beta = 0;
  std::int64_t batch = 1;
  std::int64_t stride_a = 0;  // elements from one product's to the next's; 0: the same for all
  std::int64_t stride_b = 0;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};

#define TROUPE_CUBLASLT_CALLS(X)          \
  X(cublasLtGetProperty)                  \
  X(cublasLtCreate)                       \
  X(cublasLtDestroy)                      \
  X(cublasLtMatmulDescCreate)             \
  X(cublasLtMatmulDescDestroy)            \
  X(cublasLtMatmulDescSetAttribute)       \
  X(cublasLtMatrixLayoutCreate)           \
  X(cublasLtMatrixLayoutDestroy)          \
  X(cublasLtMatrixLayoutSetAttribute)     \
  X(cublasLtMatmulPreferenceCreate)       \
  X(cublasLtMatmulPreferenceDestroy)      \
  X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatmulAlgoGetHeuristic)       \
  X(cublasLtMatmul)

// Opened when the first step asks; one handle, which streams share. Thread-safe.
class BlasLt {
 public:
  explicit BlasLt(std::string library) : name_(std::move(library)) {}
  ~BlasLt();
  BlasLt(const BlasLt&) = delete;
  BlasLt& operator=(const BlasLt&) = delete;
  // False: there is none on this machine, or it is of another version.
  [[nodiscard]] bool Open();
  [[nodiscard]] cublasLtHandle_t handle() const { return handle_; }
#define TROUPE_MEMBER(name) decltype(&::name) name = nullptr;
  TROUPE_CUBLASLT_CALLS(TROUPE_MEMBER)
#undef TROUPE_MEMBER

 private:
  bool Find();
  const std::string name_;
  std::mutex mutex_;
  bool tried_ = false;  // guarded by mutex_
  cublasLtHandle_t handle_ = nullptr;
};

// Of a plan, whose launches come one at a time: each says where the bias is.
class FusedProduct {
 public:
  // Null: cuBLASLt has none of this form. `beta` of the product is 0.
  static std::shared_ptr<FusedProduct> Make(BlasLt& calls, const Product3& product, bool bias, bool relu);
  ~FusedProduct();
  FusedProduct(const FusedProduct&) = delete;
  FusedProduct& operator=(const FusedProduct&) = delete;
  // On 64 bytes, as all values of a plan are. Null `bias`: it was made without.
  absl::Status Run(Libraries& libraries, const Spot& spot, const float* a, const float* b, const float* bias,
                   float* out);

 private:
  FusedProduct(BlasLt& calls, float alpha) : calls_(calls), alpha_(alpha) {}
  bool Describe(const Product3& product, bool bias, bool relu);
  bool Lay(cublasLtMatrixLayout_t& made, std::int64_t rows, std::int64_t columns, std::int64_t batch,
           std::int64_t stride);
  bool Choose();

  BlasLt& calls_;
  const float alpha_;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr;
  cublasLtMatrixLayout_t second_ = nullptr;
  cublasLtMatrixLayout_t result_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace troupe::gpu::cuda

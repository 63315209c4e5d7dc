#include "gpu/cuda/fused_product.hpp"

#include <dlfcn.h>

#include "base/status.hpp"

namespace troupe::gpu::cuda {
namespace {

constexpr std::uint32_t kAlignment = 64;
// The least that a lane has (Libraries::WorkspaceOf).
constexpr Bytes kMostWorkspace = MiB(4);

bool Good(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS;
}

}  // namespace

BlasLt::~BlasLt() {
  if (handle_ != nullptr) (void)cublasLtDestroy(handle_);
}

bool BlasLt::Find() {
  void* const library = dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  bool all = true;
#define TROUPE_FIND(name)                                            \
  name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  all = all && name != nullptr;
  TROUPE_CUBLASLT_CALLS(TROUPE_FIND)
#undef TROUPE_FIND
  int major = 0;
  return all && Good(cublasLtGetProperty(MAJOR_VERSION, &major)) && major == CUBLAS_VER_MAJOR;
}

bool BlasLt::Open() {
  const std::lock_guard lock(mutex_);
  if (!tried_) {
    tried_ = true;
    if (Find() && !Good(cublasLtCreate(&handle_))) handle_ = nullptr;
  }
  return handle_ != nullptr;
}

FusedProduct::~FusedProduct() {
  if (description_ != nullptr) (void)calls_.cublasLtMatmulDescDestroy(description_);
  for (cublasLtMatrixLayout_t layout : {first_, second_, result_}) {
    if (layout != nullptr) (void)calls_.cublasLtMatrixLayoutDestroy(layout);
  }
}

std::shared_ptr<FusedProduct> FusedProduct::Make(BlasLt& calls, const Product3& product, bool bias,
                                                 bool relu) {
  if (!calls.Open() || product.batch > INT32_MAX) return nullptr;
  auto made = std::shared_ptr<FusedProduct>(new FusedProduct(calls, product.alpha));
  return made->Describe(product, bias, relu) && made->Choose() ? made : nullptr;
}

bool FusedProduct::Lay(cublasLtMatrixLayout_t& made, std::int64_t rows, std::int64_t columns,
                       std::int64_t batch, std::int64_t stride) {
  const auto count = static_cast<std::int32_t>(batch);
  return Good(calls_.cublasLtMatrixLayoutCreate(&made, CUDA_R_32F, static_cast<std::uint64_t>(rows),
                                                static_cast<std::uint64_t>(columns), rows)) &&
         Good(calls_.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                      sizeof(count))) &&
         Good(calls_.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                      &stride, sizeof(stride)));
}

// cuBLASLt reads columns first: a row-major AB is the transposed B'A' there, whose rows are our columns. So
// the bias is one for each of its rows, which is what its epilogue adds.
bool FusedProduct::Describe(const Product3& p, bool bias, bool relu) {
  if (!Good(calls_.cublasLtMatmulDescCreate(&description_, p.compute, CUDA_R_32F))) return false;
  const auto set = [&](cublasLtMatmulDescAttributes_t which, const auto& value) {
    return Good(calls_.cublasLtMatmulDescSetAttribute(description_, which, &value, sizeof(value)));
  };
  const std::int32_t transpose_first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const std::int32_t transpose_second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const std::uint32_t epilogue = bias ? (relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
                                      : (relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT);
  // Looked at for its alignment only, until a launch brings the true one.
  const void* const somewhere = reinterpret_cast<const void*>(std::uintptr_t{kAlignment});
  return set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_first) &&
         set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_second) && set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue) &&
         (!bias || set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, somewhere)) &&
         Lay(first_, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.batch, p.stride_b) &&
         Lay(second_, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.batch, p.stride_a) &&
         Lay(result_, p.n, p.m, p.batch, p.m * p.n);
}

// The algorithm that cuBLASLt thinks the fastest.
bool FusedProduct::Choose() {
  cublasLtMatmulPreference_t preference = nullptr;
  if (!Good(calls_.cublasLtMatmulPreferenceCreate(&preference))) return false;
  const std::uint64_t workspace = kMostWorkspace.count();
  bool good = Good(calls_.cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)));
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    good = good && Good(calls_.cublasLtMatmulPreferenceSetAttribute(preference, which, &kAlignment,
                                                                    sizeof(kAlignment)));
  }
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  good = good && Good(calls_.cublasLtMatmulAlgoGetHeuristic(calls_.handle(), description_, first_, second_,
                                                            result_, result_, preference, 1, &found, &count));
  (void)calls_.cublasLtMatmulPreferenceDestroy(preference);
  algorithm_ = found.algo;
  return good && count == 1 && Good(found.state) && found.workspaceSize <= workspace;
}

absl::Status FusedProduct::Run(Libraries& libraries, const Spot& spot, const float* a, const float* b,
                               const float* bias, float* out) {
  constexpr float kZero = 0;
  TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<const DeviceBlock> workspace,
                          libraries.WorkspaceOf(spot.lane));
  if (bias != nullptr) {
    TROUPE_RETURN_IF_ERROR(
        libraries.Check(calls_.cublasLtMatmulDescSetAttribute(description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                              &bias, sizeof(bias)),
                        "binding a bias"));
  }
  return libraries.Check(calls_.cublasLtMatmul(calls_.handle(), description_, &alpha_, b, first_, a, second_,
                                               &kZero, out, result_, out, result_, &algorithm_,
                                               workspace->data(), kMostWorkspace.count(), spot.stream),
                         "multiplying matrices");
}

}  // namespace troupe::gpu::cuda

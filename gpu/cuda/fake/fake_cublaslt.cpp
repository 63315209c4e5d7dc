// cuBLASLt's product with an epilogue as its manual defines it, on the host and in the order of its stream.
// It has one algorithm, which wants a workspace and pointers that are aligned as they were said to be.
#include <cublasLt.h>

#include <cstring>

#include "gpu/cuda/fake/fake_driver.hpp"
#include "gpu/cuda/fake/product.hpp"

namespace fake = troupe::gpu::cuda::fake;

namespace {

constexpr std::size_t kWorkspace = 65536;

struct Description {
  cublasComputeType_t type{};
  std::int32_t transpose_a = CUBLAS_OP_N;
  std::int32_t transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const float* bias = nullptr;
};
struct Layout {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t ld = 0;
  std::int32_t batch = 1;
  std::int64_t stride = 0;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // A, B, C, D
};
// What the opaque algorithm holds.
struct Algorithm {
  std::uint64_t known;
  std::uint32_t alignment;
};
constexpr std::uint64_t kKnown = 0x7457;
// Stands for the kernel of the library, which is loaded when it is needed first.
const char kCode = 0;

template <class T, class Handle>
T& Of(Handle handle) {
  return *reinterpret_cast<T*>(handle);
}
template <class T>
cublasStatus_t Set(T& member, const void* from, std::size_t size) {
  if (size != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&member, from, size);
  return CUBLAS_STATUS_SUCCESS;
}

bool Aligned(const void* pointer, std::uint32_t to) {
  return reinterpret_cast<std::uintptr_t>(pointer) % to == 0;
}

bool Fits(const Description& d, const Layout& a, const Layout& b, const Layout& c, std::int64_t& k) {
  const bool turned_a = d.transpose_a != CUBLAS_OP_N;
  const bool turned_b = d.transpose_b != CUBLAS_OP_N;
  k = turned_a ? a.rows : a.columns;
  return (turned_a ? a.columns : a.rows) == c.rows && (turned_b ? b.rows : b.columns) == c.columns &&
         (turned_b ? b.columns : b.rows) == k && a.ld >= a.rows && b.ld >= b.rows && c.ld >= c.rows &&
         a.batch == c.batch && b.batch == c.batch;
}

}  // namespace

extern "C" {

std::uint32_t FakeCudaSmsOf(CUstream stream);  // the fake driver's

cublasStatus_t CUBLASWINAPI cublasLtGetProperty(libraryPropertyType type, int* value) {
  *value = type == MAJOR_VERSION ? static_cast<int>(fake::TheState().config.cublas_lt) : 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t* handle) {
  if (fake::Synchronise() != CUDA_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED;  // it takes memory
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t handle) {
  if (fake::Synchronise() != CUDA_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t type,
                                                     cudaDataType_t scale) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{.type = type});
  return scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t made) {
  delete &Of<Description>(made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t made,
                                                           cublasLtMatmulDescAttributes_t which,
                                                           const void* from, std::size_t size) {
  auto& description = Of<Description>(made);
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Set(description.transpose_a, from, size);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Set(description.transpose_b, from, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Set(description.epilogue, from, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Set(description.bias, from, size);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                                       std::uint64_t rows, std::uint64_t columns,
                                                       std::int64_t ld) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), ld, 1, 0});
  return type == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t made) {
  delete &Of<Layout>(made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t made,
                                                             cublasLtMatrixLayoutAttribute_t which,
                                                             const void* from, std::size_t size) {
  auto& layout = Of<Layout>(made);
  if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return Set(layout.batch, from, size);
  if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) return Set(layout.stride, from, size);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t made) {
  delete &Of<Preference>(made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t made,
                                                                 cublasLtMatmulPreferenceAttributes_t which,
                                                                 const void* from, std::size_t size) {
  auto& preference = Of<Preference>(made);
  if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return Set(preference.workspace, from, size);
  const int matrix = which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (matrix < 0 || matrix > 3) return CUBLAS_STATUS_NOT_SUPPORTED;
  return Set(preference.alignment[matrix], from, size);
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                                           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                           cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                           cublasLtMatmulPreference_t preference, int wanted,
                                                           cublasLtMatmulHeuristicResult_t* found,
                                                           int* count) {
  *count = 0;
  std::int64_t k = 0;
  if (wanted < 1 || !Fits(Of<Description>(description), Of<Layout>(a), Of<Layout>(b), Of<Layout>(d), k))
    return CUBLAS_STATUS_INVALID_VALUE;
  (void)c;
  const auto& asked = Of<Preference>(preference);
  if (asked.workspace < kWorkspace) return CUBLAS_STATUS_NOT_SUPPORTED;
  *found = {};
  const Algorithm algorithm{kKnown, asked.alignment[0]};
  std::memcpy(&found->algo, &algorithm, sizeof(algorithm));
  found->workspaceSize = kWorkspace;
  found->state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                           const void* alpha, const void* a, cublasLtMatrixLayout_t of_a,
                                           const void* b, cublasLtMatrixLayout_t of_b, const void* beta,
                                           const void* c, cublasLtMatrixLayout_t of_c, void* d,
                                           cublasLtMatrixLayout_t of_d, const cublasLtMatmulAlgo_t* algo,
                                           void* workspace, std::size_t workspace_size, cudaStream_t stream) {
  const auto& asked = Of<Description>(description);
  const auto& layout_a = Of<Layout>(of_a);
  const auto& layout_b = Of<Layout>(of_b);
  const auto& layout_d = Of<Layout>(of_d);
  (void)of_c;
  Algorithm algorithm{};
  std::memcpy(&algorithm, algo, sizeof(algorithm));
  std::int64_t k = 0;
  fake::Rounding rounding{};
  const bool bias = (asked.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  // The algorithm was chosen for all SMs.
  if (FakeCudaSmsOf(stream) != FakeCudaSmsOf(nullptr)) return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm.known != kKnown || workspace == nullptr || workspace_size < kWorkspace || c != d ||
      !Aligned(a, algorithm.alignment) || !Aligned(b, algorithm.alignment) ||
      !Aligned(d, algorithm.alignment) || !Fits(asked, layout_a, layout_b, layout_d, k) ||
      !fake::RoundingOf(asked.type, rounding) || (bias && asked.bias == nullptr))
    return CUBLAS_STATUS_INVALID_VALUE;
  const fake::Product product{asked.transpose_a != CUBLAS_OP_N,
                              asked.transpose_b != CUBLAS_OP_N,
                              layout_d.rows,
                              layout_d.columns,
                              k,
                              *static_cast<const float*>(alpha),
                              *static_cast<const float*>(beta),
                              static_cast<const float*>(a),
                              static_cast<const float*>(b),
                              static_cast<float*>(d),
                              layout_a.ld,
                              layout_b.ld,
                              layout_d.ld,
                              layout_a.stride,
                              layout_b.stride,
                              layout_d.stride,
                              layout_d.batch,
                              rounding,
                              bias ? asked.bias : nullptr,
                              (asked.epilogue & CUBLASLT_EPILOGUE_RELU) != 0};
  fake::Load(&kCode, fake::QueueOf(stream).capturing());
  fake::CountBurst(stream);
  fake::QueueOf(stream).Push([product, workspace] {
    static_cast<char*>(workspace)[kWorkspace - 1] = 1;  // it is there
    product.Run();
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

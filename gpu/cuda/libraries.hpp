// cuBLAS and cuDNN, loaded when the first step needs them: a model of element-wise steps starts without their
// hundreds of megabytes.
#pragma once

#include <cublas_v2.h>
#include <cudnn.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "gpu/cuda/context.hpp"
#include "gpu/cuda/kernels.hpp"

namespace troupe::gpu::cuda {

#define TROUPE_CUBLAS_CALLS(X) \
  X(cublasGetProperty)         \
  X(cublasCreate)              \
  X(cublasDestroy)             \
  X(cublasSetStream)           \
  X(cublasSetWorkspace)        \
  X(cublasSetMathMode)         \
  X(cublasSetSmCountTarget)    \
  X(cublasGemmStridedBatchedEx_64)

#define TROUPE_CUDNN_CALLS(X)               \
  X(cudnnGetVersion)                        \
  X(cudnnCreate)                            \
  X(cudnnDestroy)                           \
  X(cudnnSetStream)                         \
  X(cudnnGetErrorString)                    \
  X(cudnnCreateTensorDescriptor)            \
  X(cudnnDestroyTensorDescriptor)           \
  X(cudnnSetTensorNdDescriptor)             \
  X(cudnnCreateFilterDescriptor)            \
  X(cudnnDestroyFilterDescriptor)           \
  X(cudnnSetFilterNdDescriptor)             \
  X(cudnnCreateConvolutionDescriptor)       \
  X(cudnnDestroyConvolutionDescriptor)      \
  X(cudnnSetConvolutionNdDescriptor)        \
  X(cudnnSetConvolutionGroupCount)          \
  X(cudnnSetConvolutionMathType)            \
  X(cudnnCreateActivationDescriptor)        \
  X(cudnnDestroyActivationDescriptor)       \
  X(cudnnSetActivationDescriptor)           \
  X(cudnnGetConvolutionForwardAlgorithm_v7) \
  X(cudnnConvolutionForward)                \
  X(cudnnConvolutionBiasActivationForward)

struct Blas {
#define TROUPE_MEMBER(name) decltype(&::name) name = nullptr;
  TROUPE_CUBLAS_CALLS(TROUPE_MEMBER)
};
struct Dnn {
  TROUPE_CUDNN_CALLS(TROUPE_MEMBER)
#undef TROUPE_MEMBER
};

// Where a step is put: on a stream, which may be of a green context, for a lane: launches of one lane come one
// at a time, and go to its own stream or to that of their share.
struct Spot {
  CUstream stream = nullptr;
  CUstream lane = nullptr;
};

// A handle for each stream that launches, made in the context of its stream: handles are not for several threads,
// and the libraries refuse streams of another context. A workspace for each lane. Making either waits for all that
// the GPU has to do, so what the next lane needs is made ahead: with the plans, and whenever a lane takes it; a place
// of a share makes its handles with its first launch. What a product or a convolution is computed in is said with
// each. Thread-safe.
class Libraries {
 public:
  Libraries(Context& context, std::string blas, std::string dnn)
      : context_(context), blas_name_(std::move(blas)), dnn_name_(std::move(dnn)) {}
  ~Libraries();
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  // This stream is of a green context with so many SMs. Before its first launch.
  void Bound(CUstream stream, std::uint32_t sms, CUcontext context);
  [[nodiscard]] bool IsBound(CUstream stream);
  // FailedPrecondition when the library cannot be opened, or is of another major version: says which.
  absl::StatusOr<const Blas*> blas();
  absl::StatusOr<const Dnn*> dnn();
  // Makes now what steps of the open libraries need on this stream, which no lane uses and no green context has, and
  // what the next lane will need. A recording bears no call that makes it. One caller at a time.
  absl::Status Provide(CUstream stream);
  absl::StatusOr<cublasHandle_t> BlasOn(const Spot& spot);
  // Workspace of cuBLAS for this lane: at least 4 MiB.
  absl::StatusOr<std::shared_ptr<const DeviceBlock>> WorkspaceOf(CUstream lane);
  absl::StatusOr<cudnnHandle_t> DnnOn(CUstream stream);
  absl::Status Check(cublasStatus_t status, std::string_view doing) const;
  absl::Status Check(cudnnStatus_t status, std::string_view doing) const;

 private:
  Context& context_;
  const std::string blas_name_;
  const std::string dnn_name_;
  std::mutex mutex_;
  std::unique_ptr<Blas> blas_;  // guarded by mutex_ until it is there, as all below
  std::unique_ptr<Dnn> dnn_;
  struct Green {
    std::uint32_t sms = 0;
    CUcontext context = nullptr;
  };
  std::map<CUstream, Green> green_;  // the streams that have not all SMs
  // What the next lane takes.
  struct Spare {
    std::shared_ptr<const DeviceBlock> workspace;
    cublasHandle_t blas = nullptr;
    cudnnHandle_t dnn = nullptr;
    bool filling = false;  // what is missing of it is made on the context's thread
    std::condition_variable filled;
  };
  using Lock = std::unique_lock<std::mutex>;
  const Green* GreenOf(CUstream stream) const;
  absl::StatusOr<cublasHandle_t> MakeBlasHandle(const Blas& calls, const Green* green) const;
  absl::StatusOr<cudnnHandle_t> MakeDnnHandle(const Dnn& calls, const Green* green) const;
  absl::StatusOr<std::shared_ptr<const DeviceBlock>> MakeWorkspace() const;
  // Calls `make` in this context, as a library takes it from there; null: in the primary one.
  template <class Make>
  auto In(const Green* green, Make make) const;
  [[nodiscard]] bool Lacks() const;
  void FillLater();
  void Fill();
  // Takes a part of the spare for a lane. Waits while the spare is made; null: it has none.
  template <class Part>
  Part TakeSpare(Part Spare::*part, Lock& lock);
  std::map<CUstream, cublasHandle_t> blas_handles_;
  std::map<CUstream, std::shared_ptr<const DeviceBlock>> workspaces_;  // by lane
  std::map<CUstream, cudnnHandle_t> dnn_handles_;
  Spare spare_;
};

}  // namespace troupe::gpu::cuda

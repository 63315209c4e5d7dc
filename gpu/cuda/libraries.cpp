#include "gpu/cuda/libraries.hpp"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu::cuda {
namespace {

absl::StatusOr<void*> Open(const std::string& name) {
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* const error = dlerror();
  return absl::FailedPreconditionError(absl::StrCat(name, " is needed and cannot be opened (",
                                                    error == nullptr ? "no reason given" : error,
                                                    "); install it, or add its folder to LD_LIBRARY_PATH"));
}

template <class Function>
absl::Status Find(void* library, const std::string& file, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(file, " has no ", name, ": it is of another version"));
}

#define TROUPE_STRING(name) #name

absl::StatusOr<std::unique_ptr<Blas>> LoadBlas(const std::string& file) {
  TROUPE_ASSIGN_OR_RETURN(void* const library, Open(file));
  auto blas = std::make_unique<Blas>();
#define TROUPE_FIND(name) TROUPE_RETURN_IF_ERROR(Find(library, file, TROUPE_STRING(name), blas->name));
  TROUPE_CUBLAS_CALLS(TROUPE_FIND)
#undef TROUPE_FIND
  return blas;
}

absl::StatusOr<std::unique_ptr<Dnn>> LoadDnn(const std::string& file) {
  TROUPE_ASSIGN_OR_RETURN(void* const library, Open(file));
  auto dnn = std::make_unique<Dnn>();
#define TROUPE_FIND(name) TROUPE_RETURN_IF_ERROR(Find(library, file, TROUPE_STRING(name), dnn->name));
  TROUPE_CUDNN_CALLS(TROUPE_FIND)
#undef TROUPE_FIND
  return dnn;
}

// As much as cuBLAS itself would take.
Bytes WorkspaceOf(const Context& context) {
  return context.Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 9 ? MiB(32) : MiB(4);
}

}  // namespace

Libraries::~Libraries() {
  context_.Enter();
  for (const auto& [stream, made] : blas_handles_) (void)blas_->cublasDestroy(made.handle);
  for (const auto& [stream, handle] : dnn_handles_) (void)dnn_->cudnnDestroy(handle);
}

absl::StatusOr<const Blas*> Libraries::blas() {
  const std::lock_guard lock(mutex_);
  if (blas_ == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(blas_, LoadBlas(blas_name_));
  }
  return blas_.get();
}

absl::StatusOr<const Dnn*> Libraries::dnn() {
  const std::lock_guard lock(mutex_);
  if (dnn_ == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(dnn_, LoadDnn(dnn_name_));
  }
  return dnn_.get();
}

void Libraries::Bound(CUstream stream, std::uint32_t sms) {
  const std::lock_guard lock(mutex_);
  sms_[stream] = sms;
}

bool Libraries::IsBound(CUstream stream) {
  const std::lock_guard lock(mutex_);
  return sms_.contains(stream);
}

absl::StatusOr<Libraries::BlasHandle> Libraries::MakeBlasHandle(const Blas& calls, CUstream stream) {
  BlasHandle made;
  TROUPE_ASSIGN_OR_RETURN(made.workspace, DeviceBlock::Take(context_, WorkspaceOf(context_).count(),
                                                            "cuBLAS' workspace on a stream"));
  TROUPE_RETURN_IF_ERROR(Check(calls.cublasCreate(&made.handle), "starting cuBLAS"));
  // Nothing less than what each product asks for.
  absl::Status set = Check(calls.cublasSetMathMode(made.handle, CUBLAS_DEFAULT_MATH), "setting cuBLAS up");
  if (const auto bound = sms_.find(stream); set.ok() && bound != sms_.end())
    set = Check(calls.cublasSetSmCountTarget(made.handle, static_cast<int>(bound->second)),
                "telling cuBLAS its SMs");
  if (set.ok()) return made;
  (void)calls.cublasDestroy(made.handle);
  return set;
}

// The stream is set anew each time: a stream that is gone may have left its address to another. With it goes
// the workspace, and without one of its own cuBLAS would allocate, which a recording does not bear.
absl::StatusOr<cublasHandle_t> Libraries::BlasOn(CUstream stream) {
  TROUPE_ASSIGN_OR_RETURN(const Blas* const calls, blas());
  const std::lock_guard lock(mutex_);
  auto found = blas_handles_.find(stream);
  if (found == blas_handles_.end()) {
    TROUPE_ASSIGN_OR_RETURN(BlasHandle made, MakeBlasHandle(*calls, stream));
    found = blas_handles_.emplace(stream, std::move(made)).first;
  }
  const BlasHandle& made = found->second;
  TROUPE_RETURN_IF_ERROR(Check(calls->cublasSetStream(made.handle, stream), "giving cuBLAS a stream"));
  TROUPE_RETURN_IF_ERROR(
      Check(calls->cublasSetWorkspace(made.handle, made.workspace->data(), made.workspace->size().count()),
            "giving cuBLAS a workspace"));
  return made.handle;
}

absl::StatusOr<std::shared_ptr<const DeviceBlock>> Libraries::WorkspaceOn(CUstream stream) {
  TROUPE_RETURN_IF_ERROR(BlasOn(stream).status());
  const std::lock_guard lock(mutex_);
  return blas_handles_.at(stream).workspace;
}

absl::StatusOr<cudnnHandle_t> Libraries::DnnOn(CUstream stream) {
  TROUPE_ASSIGN_OR_RETURN(const Dnn* const calls, dnn());
  const std::lock_guard lock(mutex_);
  cudnnHandle_t& handle = dnn_handles_[stream];
  if (handle == nullptr) {
    const absl::Status made = Check(calls->cudnnCreate(&handle), "starting cuDNN");
    if (!made.ok()) {
      dnn_handles_.erase(stream);
      return made;
    }
  }
  TROUPE_RETURN_IF_ERROR(Check(calls->cudnnSetStream(handle, stream), "giving cuDNN a stream"));
  return handle;
}

absl::Status Libraries::Check(cublasStatus_t status, std::string_view doing) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(std::string(doing), ": cuBLAS status ", static_cast<int>(status)));
}

absl::Status Libraries::Check(cudnnStatus_t status, std::string_view doing) const {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  const char* const text = dnn_ == nullptr ? "" : dnn_->cudnnGetErrorString(status);
  return absl::InternalError(absl::StrCat(std::string(doing), ": ", text));
}

}  // namespace troupe::gpu::cuda

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

}  // namespace

Libraries::~Libraries() {
  context_.Enter();
  for (const auto& [stream, handle] : blas_handles_) (void)blas_->cublasDestroy(handle);
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

// The stream is set anew each time: a stream that is gone may have left its address to another.
absl::StatusOr<cublasHandle_t> Libraries::BlasOn(CUstream stream) {
  TROUPE_ASSIGN_OR_RETURN(const Blas* const calls, blas());
  const std::lock_guard lock(mutex_);
  cublasHandle_t& handle = blas_handles_[stream];
  if (handle == nullptr) {
    const absl::Status made = Check(calls->cublasCreate(&handle), "starting cuBLAS");
    if (!made.ok()) {
      blas_handles_.erase(stream);
      return made;
    }
    // Nothing less than what each product asks for.
    TROUPE_RETURN_IF_ERROR(Check(calls->cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH), "setting cuBLAS up"));
  }
  TROUPE_RETURN_IF_ERROR(Check(calls->cublasSetStream(handle, stream), "giving cuBLAS a stream"));
  return handle;
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

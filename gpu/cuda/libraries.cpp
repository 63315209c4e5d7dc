#include "gpu/cuda/libraries.hpp"

#include <dlfcn.h>

#include <utility>

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
Bytes WorkspaceSize(const Context& context) {
  return context.Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 9 ? MiB(32) : MiB(4);
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

void Libraries::Bound(CUstream stream, std::uint32_t sms, CUcontext context) {
  const std::lock_guard lock(mutex_);
  green_[stream] = {sms, context};
}

bool Libraries::IsBound(CUstream stream) {
  const std::lock_guard lock(mutex_);
  return green_.contains(stream);
}

// A green context may be current on one thread at a time: mutex_ sees to it.
template <class Make>
auto Libraries::In(CUstream stream, Make make) {
  const auto green = green_.find(stream);
  if (green == green_.end()) return make();
  (void)context_.driver().cuCtxSetCurrent(green->second.context);
  auto made = make();
  context_.Return();
  return made;
}

absl::StatusOr<cublasHandle_t> Libraries::MakeBlasHandle(const Blas& calls, CUstream stream) {
  cublasHandle_t handle = nullptr;
  TROUPE_RETURN_IF_ERROR(Check(In(stream, [&] { return calls.cublasCreate(&handle); }), "starting cuBLAS"));
  // Nothing less than what each product asks for.
  absl::Status set = Check(calls.cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH), "setting cuBLAS up");
  if (const auto green = green_.find(stream); set.ok() && green != green_.end())
    set = Check(calls.cublasSetSmCountTarget(handle, static_cast<int>(green->second.sms)),
                "telling cuBLAS its SMs");
  if (set.ok()) return handle;
  (void)calls.cublasDestroy(handle);
  return set;
}

absl::StatusOr<std::shared_ptr<const DeviceBlock>> Libraries::Workspace(CUstream lane) {
  // What is recorded for no lane is never launched: any lane's workspace does, and the first lane has that one.
  if (lane == nullptr && !workspaces_.empty()) return workspaces_.begin()->second;
  if (auto unowned = workspaces_.extract(nullptr); !unowned.empty()) {
    unowned.key() = lane;
    workspaces_.insert(std::move(unowned));
  }
  std::shared_ptr<const DeviceBlock>& workspace = workspaces_[lane];
  if (workspace == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(workspace, DeviceBlock::Take(context_, WorkspaceSize(context_).count(),
                                                         "cuBLAS' workspace for a lane"));
  }
  return workspace;
}

// The stream is set anew each time: a stream that is gone may have left its address to another. With it goes
// the workspace, and without one of its own cuBLAS would allocate, which a recording does not bear.
absl::StatusOr<cublasHandle_t> Libraries::BlasOn(const Spot& spot) {
  TROUPE_ASSIGN_OR_RETURN(const Blas* const calls, blas());
  const std::lock_guard lock(mutex_);
  auto found = blas_handles_.find(spot.stream);
  if (found == blas_handles_.end()) {
    TROUPE_ASSIGN_OR_RETURN(const cublasHandle_t made, MakeBlasHandle(*calls, spot.stream));
    found = blas_handles_.emplace(spot.stream, made).first;
  }
  TROUPE_ASSIGN_OR_RETURN(const auto workspace, Workspace(spot.lane));
  const cublasHandle_t handle = found->second;
  TROUPE_RETURN_IF_ERROR(Check(calls->cublasSetStream(handle, spot.stream), "giving cuBLAS a stream"));
  TROUPE_RETURN_IF_ERROR(
      Check(calls->cublasSetWorkspace(handle, workspace->data(), workspace->size().count()),
            "giving cuBLAS a workspace"));
  return handle;
}

absl::StatusOr<std::shared_ptr<const DeviceBlock>> Libraries::WorkspaceOf(CUstream lane) {
  const std::lock_guard lock(mutex_);
  return Workspace(lane);
}

absl::StatusOr<cudnnHandle_t> Libraries::DnnOn(CUstream stream) {
  TROUPE_ASSIGN_OR_RETURN(const Dnn* const calls, dnn());
  const std::lock_guard lock(mutex_);
  auto found = dnn_handles_.find(stream);
  if (found == dnn_handles_.end()) {
    cudnnHandle_t handle = nullptr;
    TROUPE_RETURN_IF_ERROR(Check(In(stream, [&] { return calls->cudnnCreate(&handle); }), "starting cuDNN"));
    found = dnn_handles_.emplace(stream, handle).first;
  }
  TROUPE_RETURN_IF_ERROR(Check(calls->cudnnSetStream(found->second, stream), "giving cuDNN a stream"));
  return found->second;
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

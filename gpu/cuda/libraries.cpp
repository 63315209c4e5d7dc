#include "gpu/cuda/libraries.hpp"

#include <dlfcn.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/cuda/shared_library.hpp"

namespace troupe::gpu::cuda {
namespace {

absl::StatusOr<void*> Open(const std::string& name) {
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  return absl::FailedPreconditionError(absl::StrCat(name, " is needed and cannot be opened (",
                                                    LastLoadError(),
                                                    "); install it, or add its folder to LD_LIBRARY_PATH"));
}

#define TROUPE_STRING(name) #name

// A file of the right name may be that of another version all the same, whose calls and structures are others.
absl::Status CheckMajor(const std::string& file, std::string_view library, std::size_t found,
                        std::size_t wanted) {
  if (found == wanted) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(file, " is of ", std::string(library), " ", found,
                                                    ", and ", std::string(library), " ", wanted,
                                                    " is needed; install that, or mend LD_LIBRARY_PATH"));
}

absl::StatusOr<std::unique_ptr<Blas>> LoadBlas(const std::string& file) {
  TROUPE_ASSIGN_OR_RETURN(void* const library, Open(file));
  auto blas = std::make_unique<Blas>();
#define TROUPE_FIND(name) TROUPE_RETURN_IF_ERROR(FindCall(library, file, TROUPE_STRING(name), blas->name));
  TROUPE_CUBLAS_CALLS(TROUPE_FIND)
#undef TROUPE_FIND
  int major = 0;
  (void)blas->cublasGetProperty(MAJOR_VERSION, &major);
  TROUPE_RETURN_IF_ERROR(CheckMajor(file, "cuBLAS", static_cast<std::size_t>(major), CUBLAS_VER_MAJOR));
  return blas;
}

absl::StatusOr<std::unique_ptr<Dnn>> LoadDnn(const std::string& file) {
  TROUPE_ASSIGN_OR_RETURN(void* const library, Open(file));
  auto dnn = std::make_unique<Dnn>();
#define TROUPE_FIND(name) TROUPE_RETURN_IF_ERROR(FindCall(library, file, TROUPE_STRING(name), dnn->name));
  TROUPE_CUDNN_CALLS(TROUPE_FIND)
#undef TROUPE_FIND
  const std::size_t version = dnn->cudnnGetVersion();  // up to version 8 its major number was the thousands
  TROUPE_RETURN_IF_ERROR(
      CheckMajor(file, "cuDNN", version < 10000 ? version / 1000 : version / 10000, CUDNN_MAJOR));
  return dnn;
}

// As much as cuBLAS itself would take.
Bytes WorkspaceSize(const Context& context) {
  return context.Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 9 ? MiB(32) : MiB(4);
}

}  // namespace

Libraries::~Libraries() {
  context_.AwaitLater();  // the next spare may be on its way
  context_.Enter();
  const auto destroy_blas = [this](cublasHandle_t handle) {
    if (handle != nullptr) (void)blas_->cublasDestroy(handle);
  };
  const auto destroy_dnn = [this](cudnnHandle_t handle) {
    if (handle != nullptr) (void)dnn_->cudnnDestroy(handle);
  };
  for (const auto& [stream, handle] : blas_handles_) destroy_blas(handle);
  for (const auto& [stream, handle] : dnn_handles_) destroy_dnn(handle);
  destroy_blas(spare_.blas);
  destroy_dnn(spare_.dnn);
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

const Libraries::Green* Libraries::GreenOf(CUstream stream) const {
  const auto found = green_.find(stream);
  return found == green_.end() ? nullptr : &found->second;
}

// A green context may be current on one thread at a time: mutex_ sees to it.
template <class Make>
auto Libraries::In(const Green* green, Make make) const {
  if (green == nullptr) return make();
  (void)context_.driver().cuCtxSetCurrent(green->context);
  auto made = make();
  context_.Return();
  return made;
}

absl::StatusOr<cublasHandle_t> Libraries::MakeBlasHandle(const Blas& calls, const Green* green) const {
  cublasHandle_t handle = nullptr;
  TROUPE_RETURN_IF_ERROR(Check(In(green, [&] { return calls.cublasCreate(&handle); }), "starting cuBLAS"));
  // Nothing less than what each product asks for.
  absl::Status set = Check(calls.cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH), "setting cuBLAS up");
  if (set.ok() && green != nullptr)
    set = Check(calls.cublasSetSmCountTarget(handle, static_cast<int>(green->sms)), "telling cuBLAS its SMs");
  if (set.ok()) return handle;
  (void)calls.cublasDestroy(handle);
  return set;
}

absl::StatusOr<cudnnHandle_t> Libraries::MakeDnnHandle(const Dnn& calls, const Green* green) const {
  cudnnHandle_t handle = nullptr;
  TROUPE_RETURN_IF_ERROR(Check(In(green, [&] { return calls.cudnnCreate(&handle); }), "starting cuDNN"));
  return handle;
}

absl::StatusOr<std::shared_ptr<const DeviceBlock>> Libraries::MakeWorkspace() const {
  return DeviceBlock::Take(context_, WorkspaceSize(context_).count(), "cuBLAS' workspace for a lane");
}

bool Libraries::Lacks() const {
  const bool blas = blas_ != nullptr && (spare_.blas == nullptr || spare_.workspace == nullptr);
  return blas || (dnn_ != nullptr && spare_.dnn == nullptr);
}

void Libraries::FillLater() {
  if (spare_.filling || !Lacks()) return;
  spare_.filling = true;
  context_.Later([this] { Fill(); });
}

// Without the lock, which launches take. What cannot be made is tried again for the lane that needs it, which then
// says why.
void Libraries::Fill() {
  Lock lock(mutex_);
  const auto make = [&](auto& part, const auto& made) {
    lock.unlock();
    auto now = made();
    lock.lock();
    if (now.ok()) part = *std::move(now);
    return now.ok();
  };
  bool good = true;
  while (good && Lacks()) {
    if (dnn_ != nullptr && spare_.dnn == nullptr)
      good = make(spare_.dnn, [&] { return MakeDnnHandle(*dnn_, nullptr); });
    else if (spare_.workspace == nullptr)
      good = make(spare_.workspace, [&] { return MakeWorkspace(); });
    else
      good = make(spare_.blas, [&] { return MakeBlasHandle(*blas_, nullptr); });
  }
  spare_.filling = false;
  spare_.filled.notify_all();
}

template <class Part>
Part Libraries::TakeSpare(Part Spare::*part, Lock& lock) {
  spare_.filled.wait(lock, [&] { return !spare_.filling || spare_.*part != nullptr; });
  Part taken = std::exchange(spare_.*part, nullptr);
  if (taken != nullptr) FillLater();
  return taken;
}

// Without the lock, as in Fill.
absl::Status Libraries::Provide(CUstream stream) {
  Lock lock(mutex_);
  FillLater();
  spare_.filled.wait(lock, [this] { return !spare_.filling; });
  const auto provide = [&](bool open, auto& handles, const auto& make) -> absl::Status {
    if (!open || handles.contains(stream)) return absl::OkStatus();
    lock.unlock();
    auto made = make();
    lock.lock();
    if (made.ok()) handles[stream] = *made;
    return made.status();
  };
  TROUPE_RETURN_IF_ERROR(
      provide(blas_ != nullptr, blas_handles_, [this] { return MakeBlasHandle(*blas_, nullptr); }));
  return provide(dnn_ != nullptr, dnn_handles_, [this] { return MakeDnnHandle(*dnn_, nullptr); });
}

// What is recorded for no lane is never launched: any lane's workspace does.
absl::StatusOr<std::shared_ptr<const DeviceBlock>> Libraries::WorkspaceOf(CUstream lane) {
  Lock lock(mutex_);
  if (const auto found = workspaces_.find(lane); found != workspaces_.end()) return found->second;
  if (lane == nullptr && spare_.workspace != nullptr) return spare_.workspace;
  if (lane == nullptr && !workspaces_.empty()) return workspaces_.begin()->second;
  auto workspace = TakeSpare(&Spare::workspace, lock);
  if (workspace == nullptr) {
    lock.unlock();  // it may wait for what is given back by others
    TROUPE_ASSIGN_OR_RETURN(workspace, MakeWorkspace());
    lock.lock();
  }
  workspaces_.emplace(lane, workspace);
  return workspace;
}

// The stream is set anew each time: a stream that is gone may have left its address to another. With it goes
// the workspace, and without one of its own cuBLAS would allocate, which a recording does not bear.
absl::StatusOr<cublasHandle_t> Libraries::BlasOn(const Spot& spot) {
  TROUPE_ASSIGN_OR_RETURN(const Blas* const calls, blas());
  TROUPE_ASSIGN_OR_RETURN(const auto workspace, WorkspaceOf(spot.lane));
  Lock lock(mutex_);
  cublasHandle_t& handle = blas_handles_[spot.stream];
  const Green* const green = GreenOf(spot.stream);
  if (handle == nullptr && green == nullptr) handle = TakeSpare(&Spare::blas, lock);
  if (handle == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(handle, MakeBlasHandle(*calls, green));
  }
  TROUPE_RETURN_IF_ERROR(Check(calls->cublasSetStream(handle, spot.stream), "giving cuBLAS a stream"));
  TROUPE_RETURN_IF_ERROR(
      Check(calls->cublasSetWorkspace(handle, workspace->data(), workspace->size().count()),
            "giving cuBLAS a workspace"));
  return handle;
}

absl::StatusOr<cudnnHandle_t> Libraries::DnnOn(CUstream stream) {
  TROUPE_ASSIGN_OR_RETURN(const Dnn* const calls, dnn());
  Lock lock(mutex_);
  cudnnHandle_t& handle = dnn_handles_[stream];
  const Green* const green = GreenOf(stream);
  if (handle == nullptr && green == nullptr) handle = TakeSpare(&Spare::dnn, lock);
  if (handle == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(handle, MakeDnnHandle(*calls, green));
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

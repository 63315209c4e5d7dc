#include "gpu/cuda/nccl.hpp"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu::cuda {
namespace {

template <class Function>
absl::Status Find(void* library, const std::string& file, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(file, " has no ", name, ": it is too old"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Nccl>> Nccl::Load(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const error = dlerror();
    return absl::FailedPreconditionError(
        absl::StrCat(library, " cannot be opened (", error == nullptr ? "no reason given" : error, ")"));
  }
  auto nccl = std::make_unique<Nccl>();
  TROUPE_RETURN_IF_ERROR(Find(handle, library, "ncclGetVersion", nccl->ncclGetVersion));
  TROUPE_RETURN_IF_ERROR(Find(handle, library, "ncclGetUniqueId", nccl->ncclGetUniqueId));
  TROUPE_RETURN_IF_ERROR(Find(handle, library, "ncclCommInitRankConfig", nccl->ncclCommInitRankConfig));
  TROUPE_RETURN_IF_ERROR(Find(handle, library, "ncclCommGetAsyncError", nccl->ncclCommGetAsyncError));
  TROUPE_RETURN_IF_ERROR(Find(handle, library, "ncclCommAbort", nccl->ncclCommAbort));
  TROUPE_RETURN_IF_ERROR(Find(handle, library, "ncclBroadcast", nccl->ncclBroadcast));
  TROUPE_RETURN_IF_ERROR(Find(handle, library, "ncclAllReduce", nccl->ncclAllReduce));
  TROUPE_RETURN_IF_ERROR(Find(handle, library, "ncclGetErrorString", nccl->ncclGetErrorString));
  int version = 0;
  if (nccl->ncclGetVersion(&version) != kNcclSuccess || version < kNcclOldest) {
    return absl::FailedPreconditionError(
        absl::StrCat(library, " is of version ", version, ", at least ", kNcclOldest, " is needed"));
  }
  return std::unique_ptr<const Nccl>(std::move(nccl));
}

}  // namespace troupe::gpu::cuda

#include "gpu/cuda/nccl.hpp"

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/cuda/shared_library.hpp"

namespace troupe::gpu::cuda {
absl::StatusOr<std::unique_ptr<const Nccl>> Nccl::Load(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(library, " cannot be opened (", LastLoadError(), ")"));
  }
  auto nccl = std::make_unique<Nccl>();
  TROUPE_RETURN_IF_ERROR(FindCall(handle, library, "ncclGetVersion", nccl->ncclGetVersion));
  TROUPE_RETURN_IF_ERROR(FindCall(handle, library, "ncclGetUniqueId", nccl->ncclGetUniqueId));
  TROUPE_RETURN_IF_ERROR(FindCall(handle, library, "ncclCommInitRankConfig", nccl->ncclCommInitRankConfig));
  TROUPE_RETURN_IF_ERROR(FindCall(handle, library, "ncclCommGetAsyncError", nccl->ncclCommGetAsyncError));
  TROUPE_RETURN_IF_ERROR(FindCall(handle, library, "ncclCommAbort", nccl->ncclCommAbort));
  TROUPE_RETURN_IF_ERROR(FindCall(handle, library, "ncclBroadcast", nccl->ncclBroadcast));
  TROUPE_RETURN_IF_ERROR(FindCall(handle, library, "ncclAllReduce", nccl->ncclAllReduce));
  TROUPE_RETURN_IF_ERROR(FindCall(handle, library, "ncclGetErrorString", nccl->ncclGetErrorString));
  int version = 0;
  if (nccl->ncclGetVersion(&version) != kNcclSuccess || version < kNcclOldest) {
    return absl::FailedPreconditionError(
        absl::StrCat(library, " is of version ", version, ", at least ", kNcclOldest, " is needed"));
  }
  return std::unique_ptr<const Nccl>(std::move(nccl));
}

}  // namespace troupe::gpu::cuda

// The CUDA driver as a table of pointers, so that nothing here is linked to it: what a machine with a driver
// has, and what a test gives instead.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

// Every call that is made of it. The header's macros turn some into a later version of theirs.
#define TROUPE_CUDA_CALLS(X)        \
  X(cuInit)                         \
  X(cuDriverGetVersion)             \
  X(cuGetErrorName)                 \
  X(cuGetErrorString)               \
  X(cuDeviceGetCount)               \
  X(cuDeviceGet)                    \
  X(cuDeviceGetName)                \
  X(cuDeviceGetAttribute)           \
  X(cuDeviceTotalMem)               \
  X(cuDeviceCanAccessPeer)          \
  X(cuDevicePrimaryCtxRetain)       \
  X(cuDevicePrimaryCtxRelease)      \
  X(cuCtxSetCurrent)                \
  X(cuCtxFromGreenCtx)              \
  X(cuMemGetInfo)                   \
  X(cuMemGetAllocationGranularity)  \
  X(cuMemCreate)                    \
  X(cuMemRelease)                   \
  X(cuMemAddressReserve)            \
  X(cuMemAddressFree)               \
  X(cuMemMap)                       \
  X(cuMemUnmap)                     \
  X(cuMemSetAccess)                 \
  X(cuMemExportToShareableHandle)   \
  X(cuMemImportFromShareableHandle) \
  X(cuMemHostRegister)              \
  X(cuMemHostUnregister)            \
  X(cuMemHostAlloc)                 \
  X(cuMemFreeHost)                  \
  X(cuStreamCreate)                 \
  X(cuStreamDestroy)                \
  X(cuStreamWaitEvent)              \
  X(cuStreamWaitValue32)            \
  X(cuStreamWriteValue32)           \
  X(cuEventCreate)                  \
  X(cuEventDestroy)                 \
  X(cuEventRecord)                  \
  X(cuEventQuery)                   \
  X(cuEventSynchronize)             \
  X(cuEventElapsedTime)             \
  X(cuDeviceGetDevResource)         \
  X(cuDevSmResourceSplitByCount)    \
  X(cuDevResourceGenerateDesc)      \
  X(cuGreenCtxCreate)               \
  X(cuGreenCtxDestroy)              \
  X(cuGreenCtxStreamCreate)         \
  X(cuLibraryLoadData)              \
  X(cuLibraryUnload)                \
  X(cuLibraryGetKernel)             \
  X(cuLaunchKernel)                 \
  X(cuStreamBeginCapture)           \
  X(cuStreamEndCapture)             \
  X(cuGraphInstantiate)             \
  X(cuGraphExecUpdate)              \
  X(cuGraphLaunch)                  \
  X(cuGraphExecDestroy)             \
  X(cuGraphDestroy)                 \
  X(cuMemAlloc)                     \
  X(cuMemFree)                      \
  X(cuMemcpyHtoD)                   \
  X(cuMemcpyHtoDAsync)              \
  X(cuMemcpyDtoHAsync)              \
  X(cuMemcpyDtoDAsync)

namespace troupe::gpu::cuda {

struct Driver {
#define TROUPE_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  TROUPE_CUDA_CALLS(TROUPE_CUDA_MEMBER)
#undef TROUPE_CUDA_MEMBER

  // NotFound when the library cannot be opened; FailedPrecondition, with the name, when it lacks a call: it
  // is too old. Stays loaded until the process ends.
  static absl::StatusOr<std::shared_ptr<const Driver>> Load(const std::string& library);
  // "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)".
  [[nodiscard]] std::string Describe(CUresult result) const;
};

}  // namespace troupe::gpu::cuda

// What is used of NCCL (2.18 and later), by its public binary interface: the library is opened by name, and
// nothing of it is needed to build.
#pragma once

#include <cuda.h>

#include <climits>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace troupe::gpu::cuda {

inline constexpr int kNcclOldest = 21800;  // 2.18.0
inline constexpr unsigned kNcclMagic = 0xcafebeef;
inline constexpr int kNcclUndefined = INT_MIN;

enum NcclResult : int { kNcclSuccess = 0, kNcclInProgress = 7 };
enum NcclType : int { kNcclUint8 = 1 };
enum NcclOperation : int { kNcclMax = 2 };
struct NcclUniqueId {
  char internal[128];
};
struct NcclOpaque;  // the library's own
using NcclComm = NcclOpaque*;
// The first fields of ncclConfig_t, as 2.17 had them: `size` and `version` say so.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = kNcclMagic;
  unsigned version = 21700;
  int blocking = kNcclUndefined;
  int cga_cluster_size = kNcclUndefined;
  int min_ctas = kNcclUndefined;
  int max_ctas = kNcclUndefined;
  const char* net_name = nullptr;
};
static_assert(sizeof(NcclConfig) == 40);

struct Nccl {
  int (*ncclGetVersion)(int* version) = nullptr;
  int (*ncclGetUniqueId)(NcclUniqueId* id) = nullptr;
  int (*ncclCommInitRankConfig)(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                                NcclConfig* config) = nullptr;
  int (*ncclCommGetAsyncError)(NcclComm comm, int* error) = nullptr;
  int (*ncclCommAbort)(NcclComm comm) = nullptr;
  int (*ncclBroadcast)(const void* send, void* receive, std::size_t count, int type, int root, NcclComm comm,
                       CUstream stream) = nullptr;
  int (*ncclAllReduce)(const void* send, void* receive, std::size_t count, int type, int operation,
                       NcclComm comm, CUstream stream) = nullptr;
  const char* (*ncclGetErrorString)(int result) = nullptr;

  // FailedPrecondition when the library cannot be opened, lacks a call or is too old: says which. Stays
  // loaded until the process ends.
  static absl::StatusOr<std::unique_ptr<const Nccl>> Load(const std::string& library);
};

}  // namespace troupe::gpu::cuda

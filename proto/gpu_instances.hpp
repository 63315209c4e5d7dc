// What a function's GpuSharing comes to where it says nothing.
#pragma once

#include <cstdint>

#include "proto/function.pb.h"
#include "proto/gpu_sharing.hpp"

namespace troupe::proto {

// Percent of a GPU's SMs that each of its runs takes, 1 to 100.
[[nodiscard]] inline std::uint32_t SmPercentOf(const GpuSharing& sharing) {
  return sharing.sm_partition() == 0 ? 100 : sharing.sm_partition();
}

// Whether its time on a GPU is counted against a quota of its own.
[[nodiscard]] inline bool HasQuota(const GpuSharing& sharing) {
  return sharing.quota_request() > 0 || sharing.quota_limit() > 0;
}

// Its runs that compute on one GPU at a time, at most. With a quota it owns one rectangle of the GPU (so many
// SMs, for that part of the time) unless it says that it owns more; without one, as many as its share of the
// SMs allows, and without a share `concurrency`, as the GPU is configured.
[[nodiscard]] inline std::uint32_t InstancesOf(const GpuSharing& sharing, std::uint32_t concurrency) {
  if (sharing.max_instances() > 0) return sharing.max_instances();
  if (HasQuota(sharing)) return 1;
  if (sharing.sm_partition() == 0) return concurrency;
  return static_cast<std::uint32_t>(InstancesOfShare(sharing.sm_partition()));
}

}  // namespace troupe::proto

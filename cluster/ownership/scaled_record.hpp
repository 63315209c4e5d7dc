// What the autoscaler is told of a function whose quota_request is left to the manager, from its record and the profiles of
// its model. For how much of each window an instance has its part of the SMs follows the load, and so does how many instances
// there are. Its part of the SMs is the function's (sm_partition). When that is left to the manager, too, each part on which a
// profiled run takes half of the deadline at most can be chosen instead. The deadline chooses no quota: a run goes on beyond
// that with the time that others leave. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "cluster/autoscaling/scaled_function.hpp"
#include "cluster/profiled_runs.hpp"
#include "cluster/records/profile_registry.hpp"
#include "proto/function.pb.h"

namespace troupe::cluster {

// Quotas are multiples of this, in percent.
inline constexpr std::uint32_t kQuotaStep = 10;

// "name/version": the name of its instances in the table of rectangles, and of its scaler.
[[nodiscard]] std::string InstanceNameOf(const FunctionVersion& function);

// `kinds`: of the cluster's GPUs. A kind without a profile counts only when no kind has one. A profile counts when it has
// a part of the SMs that instances may have, with a batch of 1.
[[nodiscard]] ScaledFunction ScaledFunctionOf(const proto::FunctionRecord& record,
                                              const ProfileRegistry& profiles, const GpuKinds& kinds);

// What an instance takes of a GPU's memory for its weights, which all instances of the function there share.
[[nodiscard]] Bytes WeightsOf(const proto::FunctionRecord& record);

}  // namespace troupe::cluster

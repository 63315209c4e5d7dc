// What the autoscaler is told of a function whose quota_request is left to the manager, from its record and the profiles of
// its model. An instance has the function's part of the SMs (sm_partition); what follows the load is for how much of each
// window, and how many instances there are. The deadline chooses none of these: a run is as long on each of them, and goes
// on beyond the instance's quota with the time that others leave. Pure.
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
// Of a function that declares no max_instances.
inline constexpr std::uint32_t kMostScaledInstances = 64;

// "name/version": the name of its instances in the table of rectangles, and of its scaler.
[[nodiscard]] std::string InstanceNameOf(const FunctionVersion& function);

// `kinds`: of the cluster's GPUs. A kind without a profile counts only when no kind has one. A profile counts when it has
// the function's part of the SMs, with a batch of 1.
[[nodiscard]] ScaledFunction ScaledFunctionOf(const proto::FunctionRecord& record,
                                              const ProfileRegistry& profiles, const GpuKinds& kinds);

// What an instance takes of a GPU's memory for its weights, which all instances of the function there share.
[[nodiscard]] Bytes WeightsOf(const proto::FunctionRecord& record);

}  // namespace troupe::cluster

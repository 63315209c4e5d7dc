// PROFILED SHARING: what the profiles of a model say for the settings that its function leaves to them
// (GpuSharing.automatic; 001 FaST-GShare, sections 3.2 and 3.4). Pure.
//
//   max_batch     the smallest batch that serves as many requests per second as the best one, on the function's share
//                 (on all SMs when that is left to the profiles, too); 1 when no batch serves more
//   sm_partition  the smallest share on which as many requests per second are served as on the best one, with each batch
//                 up to `max_batch`; at most what the declared `max_instances` leaves to each
//   gpu_mem       what the weights take, and the function's instances and one run more, with batches of `max_batch`
//
// "As many" means to 3 % (kSaturationTolerance), and throughput counts in proportion to the quota that it was measured
// with. A setting holds on all GPUs, so every kind of GPU in the cluster must have a profile of the model in the
// function's precision; where kinds differ, the more careful value counts: the larger share, the smaller batch, the larger memory.
#pragma once

#include "cluster/function_sharing.hpp"
#include "cluster/membership_table.hpp"
#include "cluster/profiled_runs.hpp"
#include "cluster/profiling/trial_plan.hpp"
#include "cluster/records/profile_registry.hpp"

namespace troupe::cluster {

inline constexpr double kSaturationTolerance = kMostProfileError;

// Of all nodes' GPUs, as AddGpuKinds counts them.
[[nodiscard]] GpuKinds KindsOf(const MembershipTable& members);

// For each setting that the function leaves to its profiles.
[[nodiscard]] ProfiledValues ValuesFromProfiles(const proto::FunctionRecord& record,
                                                const ProfileRegistry& profiles, const GpuKinds& kinds);
// The function's sharing with these values.
[[nodiscard]] proto::GpuSharing FilledIn(const proto::GpuSharing& sharing, const ProfiledValues& values);

}  // namespace troupe::cluster

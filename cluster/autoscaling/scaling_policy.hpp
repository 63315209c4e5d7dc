// SCALING POLICIES by name: what a function's load does to its instances. Pure.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/policy.hpp"
#include "cluster/autoscaling/function_scaler.hpp"

namespace troupe::cluster {

// Looks at the load that the scaler has observed, and changes its instances.
using ScalingRule = void (*)(FunctionScaler& function, const ScalingTick& tick);

// Whatever the policy: when the declarations or the profile changed, an instance that has a part of a GPU which the
// function may not have any more gets another part, or is drained. Instances beyond the largest number are drained.
void KeepToLimits(FunctionScaler& function, const ScalingTick& tick);

//   troupe       what lacks is given to instances that run, on their GPUs, as long as they use it at least half as well as
//                the best point of their profile; then to new instances, by FaST-GShare's Algorithm 1; at once. What is
//                too much for `limits.hold` goes: instances first, then parts of those that stay
//   fast-scaler  FaST-GShare's Algorithm 1 (001, section 3.4.1), where it is printed wrongly corrected: it ends when the
//                front instance serves more than what is too much, and a gap of 0 adds nothing. It adds and drains
//                instances at every tick, and changes none. It has our target utilisation and our choice of points within
//                the deadline, since the paper says nothing of either
//   hpa          Kubernetes' HorizontalPodAutoscaler: every 15 s, ceil(instances x utilisation / target), unless the two
//                differ by less than 10 %; down to the most that the last 5 minutes recommended. Instances are of the
//                point with the most throughput for its part of a GPU
[[nodiscard]] std::span<const PolicyEntry<ScalingRule>> ScalingPolicies();
[[nodiscard]] absl::StatusOr<ScalingRule> FindScalingPolicy(std::string_view name);

}  // namespace troupe::cluster

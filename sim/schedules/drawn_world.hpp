// What a seed draws of a schedule's world: the cluster and what is asked of it.
#pragma once

#include <cstdint>

#include "base/random.hpp"
#include "sim/faults/fault_plan.hpp"
#include "sim/workloads/client_load.hpp"

namespace troupe::sim {

// Numbers of nodes, GPUs and gateways come from `random`; what was added since is drawn from the seed by itself, so that a seed
// keeps the rest of its schedule.
[[nodiscard]] ClusterShape DrawShape(Random& random, std::uint64_t seed);
[[nodiscard]] WorkloadPlan DrawPlan(Random& random, std::uint64_t seed);

}  // namespace troupe::sim

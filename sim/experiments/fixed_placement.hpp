// FIXED PLACEMENT: a yardstick for placements that are learned while requests come: models lie on their GPUs
// from the begin and never move, placed with knowledge of all requests. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/random.hpp"
#include "base/units.hpp"
#include "sim/traces/workload.hpp"

namespace troupe::sim {

struct PlacedFunction {
  Bytes memory{};  // of each GPU that has it
  Duration run{};
};
struct PlacementProblem {
  std::uint32_t gpus = 0;
  Bytes gpu_memory{};
  std::vector<PlacedFunction> functions;
};
using Placement = std::vector<std::vector<bool>>;  // by GPU, then function

// For how long a request waits, on the average over all workloads: it goes to an idle GPU that has its
// function (of several to the one that the others need least), or waits for the first of them to be idle; who
// came first goes first, one run at a time on each GPU. Every function has to be somewhere.
[[nodiscard]] Duration MeanWait(const PlacementProblem& problem, const Placement& placement,
                                std::span<const Workload> workloads);

// The placement with the least MeanWait that simulated annealing finds in so many steps, each of which brings
// a function to a GPU and takes others off for it. FailedPrecondition: largest first, they do not fit beside
// each other.
[[nodiscard]] absl::StatusOr<Placement> FindPlacement(const PlacementProblem& problem,
                                                      std::span<const Workload> workloads,
                                                      std::uint32_t steps, Random& random);

}  // namespace troupe::sim

#include "sim/experiments/lalb_setup.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "sim/experiments/model_table.hpp"
#include "sim/traces/generators.hpp"
#include "sim/traces/trace_reader.hpp"

namespace troupe::sim {

ClusterSpec LalbCluster(const std::vector<ModelSpec>& models, LoadMode loads, std::uint32_t nodes) {
  constexpr std::uint32_t kGpus = 12;
  ClusterSpec cluster;
  cluster.nodes = cluster.host_copies = nodes;
  cluster.gpus = kGpus / nodes;
  cluster.gpu_memory = GiB(8);
  cluster.host_memory = GiB(256);
  cluster.loads = loads;
  cluster.timeout = std::chrono::hours(1);
  cluster.models = models;
  return cluster;
}

absl::StatusOr<LalbInputs> ReadLalbInputs(const ExperimentOptions& options) {
  LalbInputs inputs;
  TROUPE_ASSIGN_OR_RETURN(inputs.models, ReadModelTable(options.data + "/papers/lalb_table1.csv"));
  for (const int working_set : kWorkingSets) {
    const auto path = absl::StrCat(options.data, "/traces/derived_lalb_ws", working_set, ".csv");
    TROUPE_ASSIGN_OR_RETURN(auto trace, ReadTrace(path));
    const auto* counts = std::get_if<MinuteCounts>(&trace);
    if (counts == nullptr)
      return absl::InvalidArgumentError(absl::StrCat(path, " has arrivals, expected counts per minute"));
    inputs.counts[working_set] = *counts;
  }
  return inputs;
}

Workload LalbWorkload(const LalbInputs& inputs, int working_set, std::uint64_t seed) {
  Random random(seed);
  return SpreadCounts(inputs.counts.at(working_set), Spread::kUniform, random);
}

absl::StatusOr<Outcome> RunLalb(const LalbInputs& inputs, int working_set, const LalbVariant& variant,
                                const PolicyNames& policies, std::uint64_t seed) {
  SimulationSetup setup;
  setup.cluster = LalbCluster(inputs.models, variant.loads, variant.nodes);
  setup.workload = LalbWorkload(inputs, working_set, seed);
  setup.policies = policies;
  setup.seed = seed;
  setup.profiled = true;
  TROUPE_ASSIGN_OR_RETURN(auto outcome, Simulate(setup));
  if (const auto status = outcome.Conserved(); !status.ok())
    return absl::InternalError(absl::StrCat(status.message(), " (", variant.name, ", working set ",
                                            working_set, ", seed ", seed, ")"));
  return outcome;
}

}  // namespace troupe::sim

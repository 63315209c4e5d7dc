// LALB SETUP: the cluster, models and traces of 003's experiments, and one run of them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "base/policy.hpp"
#include "sim/experiments/experiment.hpp"
#include "sim/simulation.hpp"

namespace troupe::sim {

inline constexpr std::array<int, 3> kWorkingSets = {15, 25, 35};

struct LalbInputs {
  std::vector<ModelSpec> models;
  std::map<int, MinuteCounts> counts;  // by working set
};
// NotFound when a file of `options.data` is not there.
[[nodiscard]] absl::StatusOr<LalbInputs> ReadLalbInputs(const ExperimentOptions& options);

// 12 GPUs of 8 GiB on so many nodes, which divide 12; every model has a copy in the memory of each host, and nothing
// expires.
[[nodiscard]] ClusterSpec LalbCluster(const std::vector<ModelSpec>& models, LoadMode loads,
                                      std::uint32_t nodes = 1);
// A seed's requests, anywhere in their minutes.
[[nodiscard]] Workload LalbWorkload(const LalbInputs& inputs, int working_set, std::uint64_t seed);

// What is run: its name is for people.
struct LalbVariant {
  std::string name;
  LoadMode loads = LoadMode::kAtomic;
  std::uint32_t nodes = 1;
};
// Inference times are known from the begin: 003, IV has them profiled. Internal when a request was lost.
[[nodiscard]] absl::StatusOr<Outcome> RunLalb(const LalbInputs& inputs, int working_set,
                                              const LalbVariant& variant, const PolicyNames& policies,
                                              std::uint64_t seed);

}  // namespace troupe::sim

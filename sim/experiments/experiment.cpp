#include "sim/experiments/experiment.hpp"

#include <array>

namespace troupe::sim {

std::span<const Experiment> Experiments() {
  constexpr std::string_view kWorkingSet = "models in the working set";
  static constexpr std::array<Experiment, 7> kTable = {{
      {"lalb-latency", "003, Fig. 4a: mean latency on 12 GPUs, working sets of 15, 25 and 35 models",
       &LalbLatency, kWorkingSet},
      {"lalb-misses", "003, Fig. 4b: loads per request", &LalbMisses, kWorkingSet},
      {"lalb-utilization", "003, Fig. 4c: share of GPU time in runs", &LalbUtilization, kWorkingSet},
      {"lalb-false-misses", "003, Fig. 5: loads of models that another GPU had", &LalbFalseMisses,
       kWorkingSet},
      {"lalb-duplicates", "003, Fig. 6: GPUs that have the most asked model", &LalbDuplicates, kWorkingSet},
      {"lalb", "all of these, from the same runs", &Lalb, kWorkingSet},
      {"lalb-o3-sweep", "003, Fig. 7: the limit of out-of-order dispatch from 0 to 45", &LalbO3Sweep,
       "requests that may pass one"},
  }};
  return kTable;
}

}  // namespace troupe::sim

#include "sim/experiments/experiment.hpp"

#include <array>

namespace troupe::sim {

std::span<const Experiment> Experiments() {
  static constexpr std::array<Experiment, 7> kTable = {{
      {"lalb-latency", "003, Fig. 4a: mean latency on 12 GPUs, working sets of 15, 25 and 35 models",
       &LalbLatency},
      {"lalb-misses", "003, Fig. 4b: loads per request", &LalbMisses},
      {"lalb-utilization", "003, Fig. 4c: share of GPU time in runs", &LalbUtilization},
      {"lalb-false-misses", "003, Fig. 5: loads of models that another GPU had", &LalbFalseMisses},
      {"lalb-duplicates", "003, Fig. 6: GPUs that have the most asked model", &LalbDuplicates},
      {"lalb", "all of these, from the same runs", &Lalb},
      {"lalb-o3-sweep", "003, Fig. 7: the limit of out-of-order dispatch from 0 to 45", &LalbO3Sweep},
  }};
  return kTable;
}

}  // namespace troupe::sim

// RUN LIMIT CHECK: what the GPUs saw of the runs of a function that declares its run limit, and what its
// clients and those of its neighbours heard. What must hold: no run has a GPU for longer than its limit, by
// an eighth and a group of steps; no run within its limit is cut; the client of a run that was cut hears so,
// and it is not run again; afterwards others are served. Knows nothing of nodes and workers.
#pragma once

#include <string>
#include <vector>

#include "base/units.hpp"
#include "sim/checkers/request_ledger.hpp"

namespace troupe::sim {

struct GpuRun {
  std::string question{};
  Time begin{}, end{};  // of its time on the GPU
  bool cut = false;
};

struct RunLimitRules {
  std::string function{};
  Duration limit{};
  Duration group{};   // the longest piece of a run between two looks at the time
  bool once = false;  // nothing happened after which a request is rightly run again
  bool calm = false;  // nothing else happened that keeps others from being served
};

// A line for each rule that was broken.
[[nodiscard]] std::vector<std::string> CheckRunLimits(const RequestLedger& ledger,
                                                      const std::vector<GpuRun>& runs,
                                                      const RunLimitRules& rules);

}  // namespace troupe::sim

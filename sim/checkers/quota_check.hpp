// QUOTA CHECK: what the GPUs saw of the runs of functions with a limit of time. What must hold: over any windows
// that follow each other, no function has had a GPU for longer than its limit of them allows, but for the run that
// was under way at the end. Knows nothing of nodes and workers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace troupe::sim {

struct QuotaRun {
  std::uint64_t life = 0;  // of the worker
  std::string function{};
  std::uint32_t limit = 0;  // percent of a window; 0: none
  Time begin{}, end{};      // of its time on the GPU
};

// A line for each function and worker that had more.
[[nodiscard]] std::vector<std::string> CheckQuotas(const std::vector<QuotaRun>& runs, Duration window);

}  // namespace troupe::sim

// RUN CHOOSER: which of the waiting runs is staged next, and which of the ready ones is launched next.
#pragma once

#include <optional>

#include "gpu/worker/launch_order.hpp"
#include "gpu/worker/launch_slots.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/residency.hpp"
#include "gpu/worker/run_memory.hpp"
#include "gpu/worker/run_table.hpp"

namespace troupe::gpu {

// Where the weights of a run's model are.
enum class ModelPlace { kAway, kComing, kHere };

// Changes nothing. The main loop's thread.
class RunChooser {
 public:
  // All outlive the chooser.
  RunChooser(const RunTable& runs, RunMemory& memory, const LaunchSlots& slots, const Residency& residency,
             const WorkerLimits& limits)
      : runs_(runs), memory_(memory), slots_(slots), residency_(residency), limits_(limits) {}

  // The run can begin when it is there, or at its first group when it is coming.
  [[nodiscard]] ModelPlace PlaceOf(const Run& run) const;
  // Nothing also when as many runs are staged as may be.
  [[nodiscard]] std::optional<RunId> NextToStage(ModelPlace place, Time now) const;
  [[nodiscard]] std::optional<RunId> NextToLaunch(Time now) const;

 private:
  [[nodiscard]] Launchable LaunchableOf(const Run& run) const;

  const RunTable& runs_;
  RunMemory& memory_;
  const LaunchSlots& slots_;
  const Residency& residency_;
  const WorkerLimits& limits_;
};

}  // namespace troupe::gpu

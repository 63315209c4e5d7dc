// RUN CHOOSER: which of the waiting runs is staged next, and which of the ready ones is launched next.
#pragma once

#include <optional>
#include <set>

#include "gpu/worker/launch_gate.hpp"
#include "gpu/worker/launch_order.hpp"
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
  RunChooser(const RunTable& runs, RunMemory& memory, const LaunchGate& gate, const Residency& residency,
             const WorkerLimits& limits)
      : runs_(runs), memory_(memory), gate_(gate), residency_(residency), limits_(limits) {}

  // The run can begin when it is there, or at its first group when it is coming.
  [[nodiscard]] ModelPlace PlaceOf(const Run& run) const;
  // Bytes of its model's weights, which are there or on their way.
  [[nodiscard]] Bytes WeightsOf(const Run& run) const;
  // Nothing also when as many runs are staged as may be.
  [[nodiscard]] std::optional<RunId> NextToStage(ModelPlace place, Time now) const;
  // Not one of `passed`, which had no room.
  [[nodiscard]] std::optional<RunId> NextToLaunch(Time now, const std::set<RunId>& passed) const;
  // A run is ready whose function's window is used up.
  [[nodiscard]] bool SomeAwaitWindow(Time now) const;

 private:
  // Else it waits for the function's other runs, and others pass it.
  [[nodiscard]] bool MayTakeMemory(const Run& run) const;
  [[nodiscard]] Launchable LaunchableOf(const Run& run) const;

  const RunTable& runs_;
  RunMemory& memory_;
  const LaunchGate& gate_;
  const Residency& residency_;
  const WorkerLimits& limits_;
};

}  // namespace troupe::gpu

// SCALED INSTANCES: one function under the manager's autoscaler (cluster/autoscaling), in virtual time. A model of instances
// with one queue, not the actors: an instance runs one request at a time, and takes the next from the queue when it is idle
// and has time left in its window; of those that wait, one that can still meet its deadline goes first. How long a run takes
// is an input.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/run_cost.hpp"
#include "cluster/autoscaling/autoscaler.hpp"

namespace troupe::sim {

// Requests a second at a time since the begin.
using LoadCurve = std::function<double(Duration)>;

struct ScaledSetup {
  cluster::ScaledFunction function{};
  RunCost cost{};
  LoadCurve load{};
  double most_per_second = 0;  // of `load`
  Duration warm_up{};          // nothing of it is counted
  Duration length{};           // with the warm-up
  std::uint32_t gpus = 0;
  Duration tick = std::chrono::seconds(1);
  // From the decision until a new instance runs its first request, its host copy being there. A resize counts from the next
  // window on.
  Duration ready = std::chrono::seconds(1);
  bool foreseen = false;  // each tick tells the load that comes
  std::uint64_t seed = 1;
};

struct ScaledOutcome {
  std::uint64_t asked = 0;
  std::uint64_t late = 0;     // answered after their deadline, or not answered and past it at the end
  double gpu_seconds = 0;     // of rectangles, area by time, from a decision to its instance's removal
  double most_instances = 0;  // serving and draining
  std::map<cluster::ScaleAction, std::uint64_t> decisions{};
};

// Errors as of cluster::Autoscaler.
[[nodiscard]] absl::StatusOr<ScaledOutcome> ScaleInstances(const ScaledSetup& setup);

}  // namespace troupe::sim

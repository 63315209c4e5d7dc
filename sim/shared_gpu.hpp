// SHARED GPU: functions that share one GPU under virtual time. Which runs compute, on which SMs, and which goes
// first is said by the worker's own token scheduler (gpu/sharing/token_scheduler.hpp); it is asked as the worker
// asks it: before each launch, and between the groups of a launch. How long a run takes is an input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/run_cost.hpp"
#include "base/share_ladder.hpp"
#include "base/units.hpp"
#include "proto/function.pb.h"

namespace troupe::sim {

struct SharedFunction {
  std::string name;
  proto::GpuSharing sharing;
  RunCost cost;
  std::uint32_t clients = 0;  // each asks again when it is answered
  double rate = 0;            // without clients: requests a second, Poisson
};

// The SMs of the GPU, as the virtual GPU of the daemon gives them away: 16 units of 8, of 132.
[[nodiscard]] ShareLadder SharedGpuLadder();

struct SharedGpuSetup {
  std::string policy;  // of the slot `sharing`
  std::vector<SharedFunction> functions;
  Duration length{};
  std::uint64_t seed = 1;
};

struct FunctionOutcome {
  std::uint64_t asked = 0, served = 0;
  // Of what was served. What has waited for a second or more at the end counts as if it were answered then.
  std::vector<Duration> latencies;
  Duration computed{};               // of all runs, while they had SMs
  std::vector<Duration> in_windows;  // the same, by window of a second
};
struct SharedGpuOutcome {
  std::vector<FunctionOutcome> functions;  // as in the setup
  double computing = 0;                    // part of the time in which some run computes
  double sms = 0;                          // part of the SMs that runs make use of, over the whole time
};

// NotFound: no policy has this name.
[[nodiscard]] absl::StatusOr<SharedGpuOutcome> ShareGpu(const SharedGpuSetup& setup);

}  // namespace troupe::sim

// Loads on device memory, in virtual time where they have a duration, and with the clock where a call is
// timed.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "gpu/device/device.hpp"
#include "gpu/memory/memory_profile.hpp"
#include "gpu/worker/run_needs.hpp"

namespace troupe::gpu::bench {

// The memory needs of a network.
struct Network {
  std::shared_ptr<const MemoryProfile> by_step;    // weights by layer, activations by their lives
  std::shared_ptr<const MemoryProfile> by_launch;  // weights stay; activations taken at once, then trimmed
  std::vector<WeightPart> weights;
  Bytes weights_bytes;
  Bytes whole;        // weights, activations, inputs and outputs at once
  Bytes activations;  // activations, inputs and outputs at once
  std::vector<RunNeeds::Trim> trims;
};
[[nodiscard]] Network MakeNetwork(const DevicePlan& plan, Duration run_time);

// 20 functions of different digests on one GPU, none of them resident for lack of callers; bursts: in 2 of
// every 20 seconds requests come at twice the rate that the GPU serves, else at a tenth of it. One request of
// a function at a time, at most `streams` at once, which share the GPU evenly.
inline constexpr std::size_t kStreams = 1;  // the default of a worker
// How weights are held: by a model that stays on the GPU, as in a worker (its runs take their activations at
// the launch and trim them), or by the runs, which bring them layer by layer and free them (StreamBox, 004).
enum class PoolMode { kWorker, kStreamBox };
struct PoolLoad {
  std::string variant;
  PoolMode mode = PoolMode::kWorker;
  std::size_t streams = kStreams;
  std::size_t functions = 20;
  Duration length = std::chrono::seconds(200);
  std::uint64_t seed = 1;
};
struct PoolFigures {
  Bytes peak;
  Bytes mean;
  double allocation_share = 0;  // the time in calls of DeviceMemory as a share of the run time
};
[[nodiscard]] PoolFigures MeasurePool(const std::vector<Network>& networks, const PoolLoad& load);

// The microseconds of each allocation while models and runs of all sizes come and go and memory is nearly
// full.
[[nodiscard]] std::vector<double> MeasureChurn(std::string_view variant, Bytes quota, int allocations);
// For each request: the time of its allocations and frees (of weights when its model is not resident, with
// evictions for it; of a run) as a share of its run time, and the time of both parts in microseconds.
struct RequestTimes {
  std::vector<double> shares;
  std::vector<double> loads;
  std::vector<double> runs;
};
[[nodiscard]] RequestTimes MeasureRequests(std::string_view variant, int requests);
// The memory that a resident function occupies beyond its weights.
[[nodiscard]] double MeasureOverhead(Bytes quota);

[[nodiscard]] double Mean(const std::vector<double>& values);
[[nodiscard]] double Quantile(std::vector<double> values, double quantile);

}  // namespace troupe::gpu::bench

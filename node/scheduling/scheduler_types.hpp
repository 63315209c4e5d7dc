// What the swap scheduler is set up with, and what it answers. Plain data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/policy.hpp"
#include "node/request.hpp"
#include "node/scheduling/broadcasts.hpp"
#include "node/scheduling/function_binding.hpp"
#include "node/scheduling/policies/batching_policy.hpp"
#include "node/scheduling/policies/eviction_policy.hpp"
#include "node/scheduling/policies/gpu_policy.hpp"
#include "node/scheduling/policies/prefetch_policy.hpp"
#include "scheduling/ordering_policy.hpp"

namespace troupe::node {

// Of the daemon and of our presets under virtual time. With less, and loads that take about as long as runs,
// a run often ends before the model of any other one has come.
inline constexpr std::uint32_t kDefaultSwapAhead = 4;
// Of the daemon: a short run waits for no long one, and the GPU has something to do while the worker chooses the next run. Of
// 1, 2 and 4 what `make bench-sharing` chooses (docs/measurements.md#sharing).
inline constexpr std::uint32_t kDefaultConcurrency = 2;

// What happens to a model that only its request waits for, while the models on the GPU are used more.
enum class ByLayer {
  kOff,   // it evicts one of them
  kIdle,  // it passes through the GPU layer by layer, and evicts nothing
};

struct SchedulerLimits {
  std::uint32_t concurrency =
      1;  // runs without a share that compute on one GPU at a time (streams of its worker)
  std::uint32_t swap_ahead = 2;  // 2: while one request runs, the next one's model is on its way; 3: and that
                                 // of the one behind it; 1: nothing is swapped ahead
  std::uint32_t max_attempts = 3;  // workers that a request may lose
  std::uint32_t max_replans = 16;  // NoFit and not-resident answers before a request fails
  std::uint32_t max_passed = 16;   // dispatches that may pass a request which cannot be placed
  std::size_t max_waiting = 4096;  // more are bounced (BOUNCE_NO_CREDIT)
  std::uint64_t seed = 1;          // of policies that draw lots
  ByLayer by_layer = ByLayer::kOff;
  BroadcastRule broadcast = BroadcastRule::kOff;
  bool isolated = false;  // fresh workers serve no key, until they are assigned; else all are shared
  // How long a runtime must have been idle before a key that has one on another GPU takes it.
  Duration settle = std::chrono::seconds(1);

  // Nothing is swapped ahead: a load has its GPU for itself.
  [[nodiscard]] bool LoadsOccupy() const { return swap_ahead == 1; }
  // Requests dispatched to one GPU, whichever of its runtimes, and not yet done.
  [[nodiscard]] std::uint32_t PipelineDepth() const { return concurrency + swap_ahead - 1; }
};

// Requests that a GPU takes: where `most` is above `depth`, one whose model is there finds a place more for
// each model that is on its way.
struct PlaceRules {
  std::uint32_t depth = 1;
  std::uint32_t most = 1;

  [[nodiscard]] bool MoreForHits() const { return most > depth; }
  [[nodiscard]] std::uint32_t Of(std::uint32_t coming_models, bool is_hit) const {
    return is_hit ? std::min(depth + coming_models, most) : depth;
  }
};

struct SchedulerPolicies {
  OrderingPolicy ordering{};
  GpuPolicy gpu{};
  EvictionPolicy eviction = nullptr;
  PrefetchRule prefetch = PrefetchRule::kAsked;
  BindingRule binding = BindingRule::kLate;
  BatchingRules batching{};
};
// NotFound for a name that the slot's table does not have; InvalidArgument for a binding that the gpu policy
// cannot keep to.
[[nodiscard]] absl::StatusOr<SchedulerPolicies> FindSchedulerPolicies(const PolicyNames& names);
// InvalidArgument where runtimes are isolated and the gpu policy decides GPU by GPU, as if each had one for all.
[[nodiscard]] absl::Status CheckIsolation(const PolicyNames& names, const SchedulerPolicies& policies,
                                          bool isolated);

// `accepted` false: the request did not enter and `finished` is its answer (bounced or failed).
struct Submitted {
  bool accepted = true;
  Finished finished{};
  std::vector<Eviction> evictions{};  // order these before the next decision's dispatches
};
enum class CancelVerdict {
  kUnknown,    // never seen, or finished
  kCancelled,  // it waited: finished now as kCancelled
  kInFlight,   // tell the worker; a RunDone ends it as kCancelled or as what it came to
};
struct Cancelled {
  CancelVerdict verdict = CancelVerdict::kUnknown;
  Finished finished{};    // with kCancelled
  GpuIndex gpu = kNoGpu;  // with kInFlight
};

struct SchedulerCounts {
  std::uint64_t accepted = 0, served = 0, failed = 0, expired = 0, cancelled = 0, bounced = 0;
  std::uint64_t hits = 0, swaps = 0, retried = 0, no_fits = 0, evictions = 0;
  std::uint64_t peer_swaps = 0;  // of `swaps`, those from another GPU
  std::uint64_t broadcasts = 0;  // of `swaps`, those from a GPU that was loading the model itself
  std::uint64_t ahead = 0;       // prefetch, beside `swaps`
  std::uint64_t by_layer = 0;    // dispatches whose model passed through: neither hits nor swaps
  std::uint64_t joined = 0;      // requests that went with another one's run
  std::uint64_t apart = 0;       // batches that failed, so that their requests ran again one by one
  // Of `evictions`: another GPU had the model too; else by what swapping it costs.
  // Runtimes that were assigned: warm ones, used ones, and given back.
  std::uint64_t assigned = 0, taken = 0, given_back = 0;
  std::uint64_t evicted_replicas = 0, evicted_light = 0, evicted_heavy = 0;
};

}  // namespace troupe::node

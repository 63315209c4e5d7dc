// The `gpu` slot: on which GPU of the node a request runs, or whether it had better wait for a busy one.
#pragma once

#include <span>
#include <string_view>

#include "base/policy.hpp"
#include "base/units.hpp"
#include "node/request.hpp"

namespace troupe::node {

// One GPU with a living worker, as seen by one request.
struct GpuOption {
  GpuIndex gpu = 0;
  bool has_model = false;  // resident, running or being loaded
  bool has_slot = false;   // its pipeline takes another request, and nobody holds it for another one
  bool fits = false;       // the model is there, or room can be made for it now
  std::uint32_t in_flight = 0;
  Bytes free{};        // without any eviction
  Duration backlog{};  // estimated time until what was dispatched is done
  Duration load{};     // estimated time to bring the model; zero when it is there
};

enum class GpuVerdict {
  kRun,      // on `gpu`, now
  kWait,     // for `gpu`: it is busy, and still sooner than loading elsewhere
  kBlocked,  // no GPU takes it now
};
struct GpuChoice {
  GpuVerdict verdict = GpuVerdict::kBlocked;
  GpuIndex gpu = kNoGpu;
};

// Pure. kRun only names a GPU with has_slot and fits; kWait only one with has_model.
using GpuPolicy = GpuChoice (*)(std::span<const GpuOption>);

// `resident-first` (default): the GPU with the earliest estimated end, residents before loads: an idle GPU
// that has the
//   model; else a busy one that has it and is done before another could have loaded it (wait for it when its
//   pipeline is full); else the emptiest GPU, most free memory first.
// `most-free`: the GPU with the least in flight, then the most free memory; residency only breaks ties.
[[nodiscard]] std::span<const PolicyEntry<GpuPolicy>> GpuPolicies();
[[nodiscard]] absl::StatusOr<GpuPolicy> FindGpuPolicy(std::string_view name);

}  // namespace troupe::node

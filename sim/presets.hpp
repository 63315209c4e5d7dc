// PRESETS of the simulator: those of base/policy.hpp, those with a sandbox (sim/sandbox.hpp), and Torpor's
// policies on mechanisms of ours. Mechanisms are what lies below the policies: a published system takes what
// the hardware gives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/policy.hpp"
#include "gpu/swap/swap_policy.hpp"
#include "sim/profiled_gpu.hpp"
#include "sim/sandbox.hpp"

namespace troupe::sim {

struct Mechanisms {
  gpu::LinkSharing links = gpu::LinkSharing::kShared;  // whose transfer moves on a link from the host
  Turns runs = Turns::kArrival;                        // which run of a GPU is next
  std::uint32_t swap_ahead = 2;                        // node/scheduling/scheduler_types.hpp
};

struct SimPreset {
  std::string name;
  PolicyNames policies;
  std::optional<Sandbox> sandbox{};  // empty: one worker a GPU, for all
  Mechanisms mechanisms{};           // of the experiments on Torpor's node; a simulation has its file's
};
// Those of `troupe...` have the product's mechanisms. `torpor+links`, `torpor+order`, `torpor+prefetch`:
// Torpor's policies with one of them: loads by deadline, runs by deadline, models as far ahead.
// `torpor+links+order`: with two of them; `torpor+all`: with all. `fast`, `fast-bypass`, `time-sharing`, `exclusive`,
// `racing`: the default with this policy of the slot `sharing`. `time-sharing-replan`, `fast-scaler`, `hpa`,
// `oracle`: the default, but in `fast-packing` and `fast-autoscaling`. NotFound lists every preset.
[[nodiscard]] absl::StatusOr<SimPreset> FindSimPreset(std::string_view name);

}  // namespace troupe::sim

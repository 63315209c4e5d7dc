// SYSTEM PRESETS: what `--policy` names: the presets of base/policy.hpp, and published systems that differ in more than the
// policies of the slots. Those name values of options too, which hold where the operator has not set the option.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/daemon/config.hpp"
#include "base/policy.hpp"

namespace troupe::actors {

struct SystemPreset {
  PolicyNames policies{};
  std::vector<std::pair<std::string, std::string>> options{};  // keys and values
};

// `infless`, `stream-only`, `streambox`: StreamBox (004) and its baselines as far as daemons have what they do (7.1, 9.1).
// InvalidArgument for a system that only the simulator has, with what daemons lack; NotFound lists the presets.
[[nodiscard]] absl::StatusOr<SystemPreset> FindSystemPreset(std::string_view name);

// Sets the preset's options that the operator has not set.
absl::Status ApplyPresetOptions(const SystemPreset& preset, DaemonConfig& config);

}  // namespace troupe::actors

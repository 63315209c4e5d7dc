#include "actors/daemon/system_presets.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::actors {

namespace {

// 004's baselines have no pool that follows the load: each keeps what its largest run has taken.
PolicyNames WithStaticPool() {
  PolicyNames names = *FindPreset("in-order");
  names.memory = "static";
  return names;
}

struct Named {
  std::string_view name;
  SystemPreset preset;
};

const std::vector<Named>& Systems() {
  static const std::vector<Named> kSystems = {
      // A process for each function, eight of them on a GPU, and results that pass through the host.
      {"infless",
       {WithStaticPool(),
        {{"isolation", "function"},
         {"runtimes", "8"},
         {"concurrency", "8"},
         {"intermediates", "host-only"},
         {"link-sharing", "shared"}}}},
      // A runtime for each user, whose copies take the link in turns, and a part of the memory for results.
      {"stream-only",
       {WithStaticPool(),
        {{"isolation", "tenant"},
         {"runtimes", "3"},
         {"concurrency", "20"},
         {"intermediates", "static"},
         {"link-sharing", "exclusive"}}}},
      {"streambox",
       {*FindPreset("in-order"),
        {{"isolation", "tenant"},
         {"runtimes", "3"},
         {"concurrency", "20"},
         {"intermediates", "elastic"},
         {"link-sharing", "shared"}}}},
  };
  return kSystems;
}

absl::Status OnlySimulated(std::string_view name) {
  if (name != "astraea") return absl::OkStatus();
  return absl::InvalidArgumentError(
      "'astraea' hands results from one function's process to the next by CUDA IPC, which no daemon does; it is there for "
      "`troupe experiment streambox-throughput` alone; the baselines of daemons are infless and stream-only");
}

absl::Status Unknown(std::string_view name) {
  std::vector<std::string_view> known;
  for (const auto& preset : Presets()) known.push_back(preset.name);
  for (const auto& system : Systems()) known.push_back(system.name);
  return UnknownPolicy("preset", name, known);
}

}  // namespace

absl::StatusOr<SystemPreset> FindSystemPreset(std::string_view name) {
  TROUPE_RETURN_IF_ERROR(OnlySimulated(name));
  const auto system = std::ranges::find(Systems(), name, &Named::name);
  if (system != Systems().end()) return system->preset;
  const auto policies = FindPreset(name);
  if (!policies.ok()) return Unknown(name);
  return SystemPreset{*policies, {}};
}

absl::Status ApplyPresetOptions(const SystemPreset& preset, DaemonConfig& config) {
  for (const auto& option : ConfigOptions()) {
    const auto value =
        std::ranges::find(preset.options, option.key, &std::pair<std::string, std::string>::first);
    if (value == preset.options.end() || config.given.contains(option.key)) continue;
    TROUPE_RETURN_IF_ERROR(option.set(value->second, config));
  }
  return absl::OkStatus();
}

}  // namespace troupe::actors

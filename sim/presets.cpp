#include "sim/presets.hpp"

#include <array>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "gpu/sharing/sharing_policy.hpp"
#include "node/scheduling/scheduler_types.hpp"

namespace troupe::sim {

namespace {

constexpr Mechanisms kOurs{
    .links = gpu::LinkSharing::kDeadline, .runs = Turns::kDeadline, .swap_ahead = node::kDefaultSwapAhead};

// Each is the default, but for what one experiment on placement and scaling does under this name.
constexpr std::array<std::string_view, 4> kOfOneExperiment = {"time-sharing-replan", "fast-scaler", "hpa",
                                                              "oracle"};

struct Mixed {
  std::string_view name;
  Mechanisms mechanisms;
};
constexpr std::array<Mixed, 5> kMixed = {{{"torpor+links", {.links = kOurs.links}},
                                          {"torpor+order", {.runs = kOurs.runs}},
                                          {"torpor+prefetch", {.swap_ahead = kOurs.swap_ahead}},
                                          {"torpor+links+order", {.links = kOurs.links, .runs = kOurs.runs}},
                                          {"torpor+all", kOurs}}};

}  // namespace

absl::StatusOr<SimPreset> FindSimPreset(std::string_view name) {
  std::vector<std::string_view> known;
  for (const auto& preset : Presets()) {
    if (preset.name == name)
      return SimPreset{.name = std::string(name),
                       .policies = preset.policy,
                       .mechanisms = name.starts_with("troupe") ? kOurs : Mechanisms{}};
    known.push_back(preset.name);
  }
  for (const auto& preset : SandboxPresets()) {
    if (preset.name == name) return SimPreset{preset.name, preset.policies, preset.sandbox};
    known.emplace_back(preset.name);
  }
  for (const auto& mixed : kMixed) {
    if (mixed.name == name) {
      TROUPE_ASSIGN_OR_RETURN(auto policies, FindPreset("torpor"));
      return SimPreset{
          .name = std::string(name), .policies = std::move(policies), .mechanisms = mixed.mechanisms};
    }
    known.push_back(mixed.name);
  }
  for (const auto& sharing : gpu::SharingPolicies()) {
    if (sharing.name == name) {
      PolicyNames policies;
      policies.sharing = std::string(name);
      return SimPreset{.name = std::string(name), .policies = std::move(policies), .mechanisms = kOurs};
    }
    known.push_back(sharing.name);
  }
  for (const std::string_view one : kOfOneExperiment) {
    if (one == name) return SimPreset{.name = std::string(name), .policies = {}, .mechanisms = kOurs};
    known.push_back(one);
  }
  return UnknownPolicy("preset", name, known);
}

}  // namespace troupe::sim

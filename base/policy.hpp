// Policies by name. A policy fills one of fifteen slots; each slot has one explicit table in the room that
// decides with it (no self-registering statics: the linker drops them), and a preset names one policy per
// slot.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace troupe {

// One policy name per slot. The empty name in `binding` is the built-in way: every function is bound late.
struct PolicyNames {
  std::string routing = "locality";           // cluster/routing_policy.hpp
  std::string ordering = "edf-error-budget";  // scheduling/ordering_policy.hpp
  std::string gpu = "least-cost";             // node/scheduling/policies/gpu_policy.hpp
  std::string eviction = "least-value";       // node/scheduling/policies/eviction_policy.hpp
  std::string swap = "grouped";               // gpu/swap/swap_policy.hpp
  std::string prefetch = "forecast";          // node/scheduling/policies/prefetch_policy.hpp
  std::string sharing = "fast";               // gpu/sharing/sharing_policy.hpp
  std::string memory = "fine-resilient";      // gpu/memory/memory_policy.hpp
  std::string batching = "off";               // node/scheduling/policies/batching_policy.hpp
  std::string replicas = "forecast";          // cluster/copies/replica_policy.hpp
  std::string fetching = "relay";             // cluster/copies/fetch_policy.hpp
  std::string scaling = "troupe";             // cluster/autoscaling/scaling_policy.hpp
  std::string forecast = "holt";              // cluster/autoscaling/demand_forecast.hpp
  std::string owning = "by-cost";             // cluster/autoscaling/owning_choice.hpp
  std::string binding;
};

// Every slot.
inline constexpr std::array<std::string PolicyNames::*, 15> kPolicySlots = {
    &PolicyNames::routing,  &PolicyNames::ordering, &PolicyNames::gpu,      &PolicyNames::eviction,
    &PolicyNames::swap,     &PolicyNames::prefetch, &PolicyNames::sharing,  &PolicyNames::memory,
    &PolicyNames::batching, &PolicyNames::replicas, &PolicyNames::fetching, &PolicyNames::scaling,
    &PolicyNames::forecast, &PolicyNames::owning,   &PolicyNames::binding};
static_assert(sizeof(PolicyNames) == kPolicySlots.size() * sizeof(std::string),
              "kPolicySlots names every slot");

// A row of a slot's table.
template <class Policy>
struct PolicyEntry {
  std::string_view name;
  std::string_view what;  // one line, for people
  Policy policy;
};

[[nodiscard]] absl::Status UnknownPolicy(std::string_view slot, std::string_view name,
                                         const std::vector<std::string_view>& known);

// The policy `name` of a slot's table. NotFound names the slot and lists what it offers.
template <class Policy>
[[nodiscard]] absl::StatusOr<Policy> FindPolicy(std::string_view slot, std::string_view name,
                                                std::span<const PolicyEntry<Policy>> table) {
  std::vector<std::string_view> known;
  for (const auto& entry : table) {
    if (entry.name == name) return entry.policy;
    known.push_back(entry.name);
  }
  return UnknownPolicy(slot, name, known);
}

// The number in a policy's name, such as 25 in `lalb-o3=25`, where `prefix` is `lalb-o3=`. Nothing for a name that
// does not begin with the prefix; InvalidArgument when no number of 32 bits stands behind it.
[[nodiscard]] absl::StatusOr<std::optional<std::uint32_t>> NumberBehind(std::string_view slot,
                                                                        std::string_view name,
                                                                        std::string_view prefix);

// The preset `name` ("troupe" is the default). NotFound lists the presets.
[[nodiscard]] absl::StatusOr<PolicyNames> FindPreset(std::string_view name);
[[nodiscard]] std::span<const PolicyEntry<PolicyNames>> Presets();

}  // namespace troupe

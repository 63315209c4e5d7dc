// How functions share GPUs: the settings of a GpuSharing by the names that people write, and what contradicts itself in
// one, whatever the model.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/function.pb.h"

namespace troupe::proto {

// One setting. As a text it is a Quantity (base/quantity.hpp) of this unit, with this largest value, and with this word
// for 0, which means that nothing was said. A setting that the manager can choose, by profiles or by load, has a word that
// leaves it to the manager.
struct SharingField {
  std::string_view name;
  std::string_view unit;
  std::uint64_t most;
  std::string_view none;
  std::string_view automatic;  // "": the manager does not choose it
  std::uint64_t (*get)(const GpuSharing&);
  void (*set)(GpuSharing&, std::uint64_t);
};

// As many as the smallest parts of a Hopper's SMs.
inline constexpr std::uint64_t kMostInstances = 16;
inline constexpr std::uint64_t kMostBatch = 128;

inline constexpr std::array<SharingField, 8> kSharingFields = {{
    {"sm_partition", "%", 100, "all", "auto",
     [](const GpuSharing& from) -> std::uint64_t { return from.sm_partition(); },
     [](GpuSharing& to, std::uint64_t value) { to.set_sm_partition(static_cast<std::uint32_t>(value)); }},
    {"quota_request", "%", 100, "none", "auto",
     [](const GpuSharing& from) -> std::uint64_t { return from.quota_request(); },
     [](GpuSharing& to, std::uint64_t value) { to.set_quota_request(static_cast<std::uint32_t>(value)); }},
    {"quota_limit", "%", 100, "none", "",
     [](const GpuSharing& from) -> std::uint64_t { return from.quota_limit(); },
     [](GpuSharing& to, std::uint64_t value) { to.set_quota_limit(static_cast<std::uint32_t>(value)); }},
    {"gpu_mem", "B", INT64_MAX, "none", "auto",
     [](const GpuSharing& from) -> std::uint64_t { return from.gpu_mem(); },
     [](GpuSharing& to, std::uint64_t value) { to.set_gpu_mem(value); }},
    {"max_instances", "", kMostInstances, "auto", "",
     [](const GpuSharing& from) -> std::uint64_t { return from.max_instances(); },
     [](GpuSharing& to, std::uint64_t value) { to.set_max_instances(static_cast<std::uint32_t>(value)); }},
    {"max_batch", "", kMostBatch, "default", "auto",
     [](const GpuSharing& from) -> std::uint64_t { return from.max_batch(); },
     [](GpuSharing& to, std::uint64_t value) { to.set_max_batch(static_cast<std::uint32_t>(value)); }},
    {"min_instances", "", kMostInstances, "none", "",
     [](const GpuSharing& from) -> std::uint64_t { return from.min_instances(); },
     [](GpuSharing& to, std::uint64_t value) { to.set_min_instances(static_cast<std::uint32_t>(value)); }},
    {"target_utilisation", "%", 100, "default", "",
     [](const GpuSharing& from) -> std::uint64_t { return from.target_utilisation(); },
     [](GpuSharing& to, std::uint64_t value) {
       to.set_target_utilisation(static_cast<std::uint32_t>(value));
     }},
}};

// It says how the instances of a function follow its load, and is of no other functions.
[[nodiscard]] bool IsOfScaling(const SharingField& field);

// Null: there is no such setting.
[[nodiscard]] const SharingField* FindSharingField(std::string_view name);
// "sm_partition, quota_request, ...": for messages.
[[nodiscard]] std::string SharingFieldNames();

// What was declared of a setting: its value, 0, or kLeftToManager.
inline constexpr std::uint64_t kLeftToManager = UINT64_MAX;
[[nodiscard]] std::uint64_t Declared(const GpuSharing& sharing, const SharingField& field);
// A setting that was left to the manager before keeps the value that the manager gave it.
void Declare(GpuSharing& sharing, const SharingField& field, std::uint64_t value);
// Without the values that the manager gave.
[[nodiscard]] GpuSharing Declarations(const GpuSharing& sharing);
// The function's instances follow its load (cluster/autoscaling): its quota_request is left to the manager.
[[nodiscard]] bool IsScaled(const GpuSharing& sharing);

// How many runs of this share of the SMs fit on a GPU at a time; `percent` is above 0.
[[nodiscard]] constexpr std::uint64_t InstancesOfShare(std::uint64_t percent) {
  const auto fitting = 100 / percent;
  return fitting < kMostInstances ? fitting : kMostInstances;
}

struct SharingFault {
  std::string_view field;  // the setting that is to be changed
  std::string why;         // what was asked, what was found, what to do
};
// Nothing when each setting is in its range and they go together. Whether the model allows them is the registry's to say
// (cluster/function_sharing.hpp).
[[nodiscard]] std::optional<SharingFault> FaultIn(const GpuSharing& sharing);

}  // namespace troupe::proto

// How a function shares the GPUs that it runs on (001 FaST-GShare, sections 3.2 to 3.5): what its model allows of the
// settings that its developer declares, and what applies where none was declared. What profiles say for the settings that
// were left to them: cluster/profiling/profiled_sharing.hpp. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/admin.pb.h"
#include "proto/function.pb.h"

namespace troupe::cluster {

// Percent of the time of its instances for which a function that follows its load wants them busy, when it says nothing.
inline constexpr std::uint64_t kDefaultUtilisation = 70;
// Instances in the cluster of a function that follows its load and declares no max_instances, at most.
inline constexpr std::uint32_t kMostScaledInstances = 64;

// InvalidArgument names the setting that contradicts another one or the model, with what was found and what to do.
[[nodiscard]] absl::Status ValidateSharing(const proto::FunctionRecord& record);

// Why one run cannot answer several requests; nothing when it can.
[[nodiscard]] std::optional<std::string> WhyUnbatched(const proto::FunctionRecord& record);

// The sharing of `record`, in which the settings that the wish names have the values of the wish. InvalidArgument: the
// wish names no setting, or a setting that does not exist.
[[nodiscard]] absl::StatusOr<proto::GpuSharing> SharingAfter(const proto::FunctionRecord& record,
                                                             const proto::UpdateFunction& wish);

// What the profiles say for a setting that was left to them.
struct ProfiledValue {
  std::uint64_t value = 0;  // 0: they do not say it
  std::string reason{};     // how the value follows, or why there is none
};
using ProfiledValues = std::map<std::string, ProfiledValue, std::less<>>;  // by the name of the setting

// The largest share that the number of instances allows, which was declared; 100 when none was.
[[nodiscard]] std::uint64_t MostShare(const proto::GpuSharing& sharing);

// Every setting with the value that applies to the function and where it comes from, in the order of the message's fields.
// `profiled`: of the settings that were left to the profiles.
[[nodiscard]] std::vector<proto::AppliedSetting> AppliedSettings(const proto::FunctionRecord& record,
                                                                 const ProfiledValues& profiled = {});

// "sm_partition 24%, quota_limit 80%, max_batch auto": the declared settings; behind "auto" the value that profiles gave
// ("sm_partition auto (24%)"); "no setting".
[[nodiscard]] std::string DescribeSharing(const proto::GpuSharing& sharing);
// The settings that the wish names, with the word for 'nothing declared' where it takes one back: "quota_limit none".
[[nodiscard]] std::string DescribeUpdate(const proto::UpdateFunction& wish);

}  // namespace troupe::cluster

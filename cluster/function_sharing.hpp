// How a function shares the GPUs that it runs on (001 FaST-GShare, sections 3.2 to 3.5): what its model allows of the
// settings that its developer declares, and what applies where none was declared. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/admin.pb.h"
#include "proto/function.pb.h"

namespace troupe::cluster {

// InvalidArgument names the setting that contradicts another one or the model, with what was found and what to do.
[[nodiscard]] absl::Status ValidateSharing(const proto::FunctionRecord& record);

// The sharing of `record`, in which the settings that the wish names have the values of the wish. InvalidArgument: the
// wish names no setting, or a setting that does not exist.
[[nodiscard]] absl::StatusOr<proto::GpuSharing> SharingAfter(const proto::FunctionRecord& record,
                                                             const proto::UpdateFunction& wish);

// Every setting with the value that applies to the function and where it comes from, in the order of the message's fields.
[[nodiscard]] std::vector<proto::AppliedSetting> AppliedSettings(const proto::FunctionRecord& record);

// "sm_partition 24%, quota_limit 80%": the declared settings; "no setting".
[[nodiscard]] std::string DescribeSharing(const proto::GpuSharing& sharing);
// The settings that the wish names, with the word for 'nothing declared' where it takes one back: "quota_limit none".
[[nodiscard]] std::string DescribeUpdate(const proto::UpdateFunction& wish);

}  // namespace troupe::cluster

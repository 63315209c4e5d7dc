// What a query says of how a function shares its GPUs: one parameter for each setting of a GpuSharing, by its name.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "proto/admin.pb.h"

namespace troupe::gateway {

// False: `key` is not a setting. InvalidArgument: it is one, and `value` is not valid for it.
[[nodiscard]] absl::StatusOr<bool> ReadSetting(const std::string& key, const std::string& value,
                                               proto::GpuSharing& sharing);
// A query has the settings that are to change, and may have "version". InvalidArgument: the query has no setting, or a
// parameter that is neither.
[[nodiscard]] absl::StatusOr<proto::UpdateFunction> ReadUpdate(
    const std::string& name, const std::map<std::string, std::string>& query);

}  // namespace troupe::gateway

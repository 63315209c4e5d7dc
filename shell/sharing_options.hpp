// SHARING OPTIONS: what `function deploy` and `function update` say of how a function shares its GPUs: one option for each
// setting of a GpuSharing, "--quota-limit" for `quota_limit`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/function.pb.h"
#include "shell/verb.hpp"

namespace troupe::shell {

[[nodiscard]] std::vector<Argument> SharingArguments();
// Sets what the options say, and returns the names of the settings that they set. A usage error names the option.
[[nodiscard]] absl::StatusOr<std::vector<std::string>> ReadSharing(const Arguments& arguments,
                                                                   proto::GpuSharing& sharing);

}  // namespace troupe::shell

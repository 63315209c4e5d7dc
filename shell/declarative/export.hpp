// EXPORT: what a cluster has, as the YAML that apply reads. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/admin.pb.h"

namespace troupe::shell {

// Documents of the functions and workflows with these names; of all without names. NotFound: there is no such name.
// `functions` and `workflows`: replies to ListFunctions and ListWorkflows. Models are named by digest.
[[nodiscard]] absl::StatusOr<std::string> ExportYaml(const proto::AdminReply& functions,
                                                     const proto::AdminReply& workflows,
                                                     const std::vector<std::string>& names);

}  // namespace troupe::shell

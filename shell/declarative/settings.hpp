// SETTINGS: what a document says of a function beside its model: objective, compute, isolation, state. Read, compared
// with a record of the cluster, and written back. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/admin.pb.h"
#include "shell/declarative/yaml_map.hpp"

namespace troupe::shell {

// "deadline", "percentile", ...
[[nodiscard]] const std::vector<std::string>& SettingKeys();
// Reads the settings that the mapping has; `deploy` keeps the others that it has.
[[nodiscard]] absl::Status ReadSettings(const YamlMap& map, proto::DeployRequest& deploy);
// The settings of how the function shares its GPUs go together; else an error with the line of one of them.
[[nodiscard]] absl::Status CheckSharing(const YamlMap& map, const proto::DeployRequest& deploy);

// "deadline: 50ms -> 40ms": one text for each setting in which the wish and the record differ. An objective that the
// wish does not mention is that of the record; any other setting that it does not mention is the default.
[[nodiscard]] std::vector<std::string> DifferencesOf(const proto::FunctionRecord& record,
                                                     const proto::DeployRequest& wish);
// "deadline: 50ms": one line for each setting that is not the default.
[[nodiscard]] std::vector<std::string> SettingLines(const proto::FunctionRecord& record);
// A record that has these settings.
[[nodiscard]] proto::FunctionRecord RecordOf(const proto::DeployRequest& wish);

// A text as YAML has it, quoted where it needs to be.
[[nodiscard]] std::string YamlText(const std::string& text);
// "50ms": the shortest text that ParseDuration reads as this time.
[[nodiscard]] std::string ExactTime(std::int64_t nanoseconds);

}  // namespace troupe::shell

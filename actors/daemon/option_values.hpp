// Options whose values have a form that no other option's have. Private to the table of options (config.cpp).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "actors/daemon/config.hpp"

namespace troupe::actors {

absl::Status SetRoles(const std::string& value, DaemonConfig& config);
absl::Status SetLink(const std::string& value, DaemonConfig& config);
absl::Status SetCorsOrigins(const std::string& value, DaemonConfig& config);
[[nodiscard]] std::string ShowLink(const DaemonConfig& config);
absl::Status SetPreset(const std::string& value, DaemonConfig& config);
absl::Status SetTopology(const std::string& value, DaemonConfig& config);

}  // namespace troupe::actors

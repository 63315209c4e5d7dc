#include "actors/daemon/option_values.hpp"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "actors/daemon/option_setters.hpp"
#include "actors/daemon/system_presets.hpp"
#include "base/status.hpp"
#include "gateway/cors.hpp"
#include "node/scheduling/topology.hpp"

namespace troupe::actors {

absl::Status SetRoles(const std::string& value, DaemonConfig& config) {
  using security::Role;
  constexpr security::Roles kOfDaemons = {Role::kManager, Role::kGateway, Role::kNode};
  config.member.roles = {};
  config.member.embedded = false;
  for (const auto piece : absl::StrSplit(value, absl::ByAnyChar(", |"), absl::SkipEmpty())) {
    if (piece == "all") {
      config.member.roles = kOfDaemons;
      config.member.embedded = true;
      continue;
    }
    const auto role = security::ParseRole(std::string(piece));
    if (!role.ok() || !kOfDaemons.Has(*role))
      return Wrong(std::string(piece), "manager, gateway, node (several with commas) or all");
    config.member.roles.Add(*role);
  }
  return absl::OkStatus();
}

absl::Status SetLink(const std::string& value, DaemonConfig& config) {
  Bytes rate;
  if (!ParseBytes(value, rate)) return Wrong(value, "bytes per second such as 6GB, or 0 for no limit");
  config.gpus.link = BytesPerSecond{static_cast<double>(rate.count())};
  return absl::OkStatus();
}

absl::Status SetCorsOrigins(const std::string& value, DaemonConfig& config) {
  const std::vector<std::string> origins = absl::StrSplit(value, ',', absl::SkipWhitespace());
  return gateway::CheckCorsOrigins(config.http.cors_origins = origins);
}

std::string ShowLink(const DaemonConfig& config) {
  return absl::StrCat(config.gpus.link.value / 1e9, "GB");
}

absl::Status SetPreset(const std::string& value, DaemonConfig& config) {
  config.policies.preset = value;
  return FindSystemPreset(value).status();
}

absl::Status SetTopology(const std::string& value, DaemonConfig& config) {
  config.gpus.topology = value;
  if (value == "auto") return absl::OkStatus();
  return node::Topology::Parse(value).status();
}

}  // namespace troupe::actors

#include "actors/daemon/option_values.hpp"

#include <set>
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
  static const std::set<std::string> kKnown = {"manager", "gateway", "node", "all"};
  config.member.roles.clear();
  config.member.embedded = false;
  for (const auto piece : absl::StrSplit(value, absl::ByAnyChar(", |"), absl::SkipEmpty())) {
    const std::string role(piece);
    if (!kKnown.contains(role)) return Wrong(role, "manager, gateway, node (several with commas) or all");
    if (role == "all") {
      config.member.roles = {"manager", "gateway", "node"};
      config.member.embedded = true;
    } else {
      config.member.roles.insert(role);
    }
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

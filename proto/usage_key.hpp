// The name under which a worker counts what a function uses.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace troupe::proto {

// "TENANT/FUNCTION". Neither name can contain a slash.
[[nodiscard]] inline std::string UsageKey(const std::string& tenant, const std::string& function) {
  return tenant + "/" + function;
}
// Tenant and function. A key without a slash names no tenant.
[[nodiscard]] inline std::pair<std::string, std::string> SplitUsageKey(std::string_view key) {
  const auto slash = key.find('/');
  if (slash == std::string_view::npos) return {"", std::string(key)};
  return {std::string(key.substr(0, slash)), std::string(key.substr(slash + 1))};
}

}  // namespace troupe::proto

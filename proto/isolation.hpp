// Isolation modes by the names that people write.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "proto/function.pb.h"

namespace troupe::proto {

inline constexpr std::array<std::pair<std::string_view, Isolation>, 4> kIsolations = {{
    {"shared", ISOLATION_SHARED},
    {"tenant", ISOLATION_TENANT},
    {"workflow", ISOLATION_WORKFLOW},
    {"function", ISOLATION_FUNCTION},
}};
// For messages.
inline constexpr std::string_view kIsolationNames = "shared, tenant, workflow, function";

[[nodiscard]] inline std::optional<Isolation> ParseIsolation(std::string_view name) {
  for (const auto& [known, isolation] : kIsolations)
    if (known == name) return isolation;
  return std::nullopt;
}

[[nodiscard]] inline std::string_view Name(Isolation isolation) {
  for (const auto& [name, known] : kIsolations)
    if (known == isolation) return name;
  return "default";
}

}  // namespace troupe::proto

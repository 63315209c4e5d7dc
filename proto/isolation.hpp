// Isolation modes by the names that people write.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "base/enum_names.hpp"
#include "proto/function.pb.h"

namespace troupe::proto {

inline constexpr std::array<EnumName<Isolation>, 4> kIsolations = {{
    {"shared", ISOLATION_SHARED},
    {"tenant", ISOLATION_TENANT},
    {"workflow", ISOLATION_WORKFLOW},
    {"function", ISOLATION_FUNCTION},
}};

[[nodiscard]] inline std::optional<Isolation> ParseIsolation(std::string_view name) {
  return FindNamed(kIsolations, name);
}

[[nodiscard]] inline std::string_view Name(Isolation isolation) {
  const std::string_view name = NameIn(kIsolations, isolation);
  return name.empty() ? "default" : name;
}

}  // namespace troupe::proto

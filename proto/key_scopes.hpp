// What the scopes of API keys are called.
#pragma once

#include <string_view>
#include <utility>

#include "proto/access.pb.h"

namespace troupe::proto {

inline constexpr std::pair<KeyScope, std::string_view> kKeyScopes[] = {{KEY_SCOPE_INFER, "infer"},
                                                                       {KEY_SCOPE_DEPLOY, "deploy"},
                                                                       {KEY_SCOPE_ADMIN, "admin"},
                                                                       {KEY_SCOPE_READ, "read"}};

// "infer", "deploy", "admin", "read"; "unknown" for any other number.
[[nodiscard]] constexpr std::string_view ScopeName(KeyScope scope) {
  for (const auto& [known, name] : kKeyScopes)
    if (known == scope) return name;
  return "unknown";
}

}  // namespace troupe::proto

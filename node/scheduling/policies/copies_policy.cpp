#include "node/scheduling/policies/copies_policy.hpp"

#include <array>

namespace troupe::node {

std::span<const PolicyEntry<CopiesRule>> CopiesPolicies() {
  static constexpr std::array<PolicyEntry<CopiesRule>, 3> kTable = {{
      {"asked", "a model comes for a request that waits for it", CopiesRule::kAsked},
      {"ahead", "models that are asked for much also come ahead of requests", CopiesRule::kAhead},
      {"forecast", "and those that are asked for at regular intervals before the next request",
       CopiesRule::kForecast},
  }};
  return kTable;
}

absl::StatusOr<CopiesRule> FindCopiesPolicy(std::string_view name) {
  return FindPolicy<CopiesRule>("copies", name, CopiesPolicies());
}

}  // namespace troupe::node

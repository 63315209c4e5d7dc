#include "node/scheduling/policies/prefetch_policy.hpp"

#include <array>

namespace troupe::node {

std::span<const PolicyEntry<PrefetchRule>> PrefetchPolicies() {
  static constexpr std::array<PolicyEntry<PrefetchRule>, 3> kTable = {{
      {"asked", "a model comes for a request that waits for it", PrefetchRule::kAsked},
      {"ahead", "models that are asked for much also come ahead of requests", PrefetchRule::kAhead},
      {"forecast", "and models with regular requests come before the next one", PrefetchRule::kForecast},
  }};
  return kTable;
}

absl::StatusOr<PrefetchRule> FindPrefetchPolicy(std::string_view name) {
  return FindPolicy<PrefetchRule>("prefetch", name, PrefetchPolicies());
}

}  // namespace troupe::node

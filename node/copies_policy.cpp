#include "node/copies_policy.hpp"

#include <array>

namespace troupe::node {

std::span<const PolicyEntry<CopiesRule>> CopiesPolicies() {
  static constexpr std::array<PolicyEntry<CopiesRule>, 2> kTable = {{
      {"asked", "a model comes for a request that waits for it", CopiesRule::kAsked},
      {"ahead", "models that are asked for much also come ahead of requests", CopiesRule::kAhead},
  }};
  return kTable;
}

absl::StatusOr<CopiesRule> FindCopiesPolicy(std::string_view name) {
  return FindPolicy<CopiesRule>("copies", name, CopiesPolicies());
}

}  // namespace troupe::node

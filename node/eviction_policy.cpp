#include "node/eviction_policy.hpp"

#include <array>

namespace troupe::node {

namespace {

EvictionRank LeastRecentlyUsed(const EvictionCandidate& candidate) {
  return {.tier = candidate.wanted ? 1 : 0, .value = candidate.last_use.time_since_epoch().count()};
}

}  // namespace

std::span<const PolicyEntry<EvictionPolicy>> EvictionPolicies() {
  static constexpr std::array<PolicyEntry<EvictionPolicy>, 1> kTable = {{
      {"lru", "least recently used first, models that a request waits for last", &LeastRecentlyUsed},
  }};
  return kTable;
}

absl::StatusOr<EvictionPolicy> FindEvictionPolicy(std::string_view name) {
  return FindPolicy<EvictionPolicy>("eviction", name, EvictionPolicies());
}

}  // namespace troupe::node

#include "node/eviction_policy.hpp"

#include <array>

namespace troupe::node {

namespace {

EvictionRank LeastRecentlyUsed(const EvictionCandidate& candidate) {
  return {.tier = candidate.wanted ? 1 : 0, .value = candidate.last_use.time_since_epoch().count()};
}

EvictionRank StrictLeastRecentlyUsed(const EvictionCandidate& candidate) {
  return {.tier = 0, .value = candidate.last_use.time_since_epoch().count()};
}

EvictionRank HeavinessAware(const EvictionCandidate& candidate) {
  const bool only_heavy_copy = candidate.heavy && candidate.replicas <= 1;
  EvictionRank rank = LeastRecentlyUsed(candidate);
  if (only_heavy_copy) rank.tier += 2;
  return rank;
}

}  // namespace

std::span<const PolicyEntry<EvictionPolicy>> EvictionPolicies() {
  static constexpr std::array<PolicyEntry<EvictionPolicy>, 3> kTable = {{
      {"lru", "least recently used first, models that a request waits for last", &LeastRecentlyUsed},
      {"lru-strict", "least recently used first, whoever waits for it", &StrictLeastRecentlyUsed},
      {"heaviness-aware", "light or replicated models first, the only copies of heavy ones last",
       &HeavinessAware},
  }};
  return kTable;
}

absl::StatusOr<EvictionPolicy> FindEvictionPolicy(std::string_view name) {
  return FindPolicy<EvictionPolicy>("eviction", name, EvictionPolicies());
}

}  // namespace troupe::node

#include "node/scheduling/policies/eviction_policy.hpp"

#include <algorithm>
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
  constexpr std::int32_t kTiersOfAClass = 2;  // those of least recent use
  std::int32_t its_class = 0;
  if (candidate.replicas <= 1) its_class = !candidate.heavy ? 1 : candidate.delay <= candidate.run ? 2 : 3;
  EvictionRank rank = LeastRecentlyUsed(candidate);
  rank.tier += kTiersOfAClass * its_class;
  return rank;
}

// How much worse the delay of a swap is for requests with little time to spare: it grows as the square of
// that time over what the swap leaves of it. When even a resident model is too late, or there is no deadline,
// it is not worse.
double Hurt(Duration delay, Duration slack) {
  constexpr double kLeastLeft = 0.1;
  if (slack == Duration::max() || slack <= Duration()) return 1;
  const double left = std::max(1 - ToSeconds(delay) / ToSeconds(slack), kLeastLeft);
  return 1 / (left * left);
}

// Copies share the requests; while there is another copy, most requests need no swap when this one is gone.
EvictionRank LeastValue(const EvictionCandidate& candidate) {
  constexpr double kOneOfSeveral = 0.5;
  EvictionRank rank = LeastRecentlyUsed(candidate);
  double cost = candidate.rate * (ToSeconds(candidate.load) +
                                  Hurt(candidate.delay, candidate.slack) * ToSeconds(candidate.delay));
  if (candidate.replicas > 1) cost *= kOneOfSeveral / candidate.replicas;
  const double gigabytes = static_cast<double>(candidate.bytes.count()) * 1e-9;
  rank.value = static_cast<std::int64_t>(1e9 * std::min(cost / std::max(gigabytes, 1e-6), 1e9));
  return rank;
}

}  // namespace

std::span<const PolicyEntry<EvictionPolicy>> EvictionPolicies() {
  static constexpr std::array<PolicyEntry<EvictionPolicy>, 4> kTable = {{
      {"lru", "least recently used first, models that a request waits for last", &LeastRecentlyUsed},
      {"lru-strict", "least recently used first, also when requests wait for it", &StrictLeastRecentlyUsed},
      {"heaviness-aware", "replicas first, then the only copies of light models, of median and of heavy ones",
       &HeavinessAware},
      {"least-value", "what is cheapest to have away, for the memory that it takes", &LeastValue},
  }};
  return kTable;
}

absl::StatusOr<EvictionPolicy> FindEvictionPolicy(std::string_view name) {
  return FindPolicy<EvictionPolicy>("eviction", name, EvictionPolicies());
}

}  // namespace troupe::node

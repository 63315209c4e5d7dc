#include "cluster/routing_policy.hpp"

#include <array>

namespace troupe::cluster {

namespace {

// True when `a` has used a smaller share of its credits, or has more of them left.
bool LessLoaded(const NodeOption& a, const NodeOption& b) {
  const std::uint64_t left = a.in_flight * b.limit;
  const std::uint64_t right = b.in_flight * a.limit;
  if (left != right) return left < right;
  return a.limit - a.in_flight > b.limit - b.in_flight;
}

std::size_t LoadBalance(std::span<const NodeOption> options) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < options.size(); ++i) {
    if (LessLoaded(options[i], options[best])) best = i;
  }
  return best;
}

std::size_t Locality(std::span<const NodeOption> options) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < options.size(); ++i) {
    const NodeOption& option = options[i];
    if (option.resident != options[best].resident ? option.resident : LessLoaded(option, options[best]))
      best = i;
  }
  return best;
}

}  // namespace

std::span<const PolicyEntry<RoutingPolicy>> RoutingPolicies() {
  static constexpr std::array<PolicyEntry<RoutingPolicy>, 2> kTable = {{
      {"locality", "a node with the model on a GPU first, then the least loaded", &Locality},
      {"load-balance", "the least loaded node", &LoadBalance},
  }};
  return kTable;
}

absl::StatusOr<RoutingPolicy> FindRoutingPolicy(std::string_view name) {
  return FindPolicy<RoutingPolicy>("routing", name, RoutingPolicies());
}

}  // namespace troupe::cluster

#include "cluster/routing_policy.hpp"

#include <algorithm>
#include <array>

#include "base/status.hpp"

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

// Whether `option` may have one request more: at most five quarters of its part by credits, which is the
// bound that consistent hashing with bounded loads is usually given. (Twice the part would bind none of two
// options.)
bool WithinBound(const NodeOption& option, std::span<const NodeOption> options) {
  std::uint64_t in_flight = 1;
  std::uint64_t limit = 0;
  for (const NodeOption& other : options) {
    in_flight += other.in_flight;
    limit += other.limit;
  }
  const std::uint64_t divisor = std::max<std::uint64_t>(4 * limit, 1);
  const std::uint64_t most = (5 * in_flight * option.limit + divisor - 1) / divisor;
  return option.in_flight < most;
}

std::size_t BoundedLocality(std::span<const NodeOption> options) {
  const std::size_t best = Locality(options);
  return WithinBound(options[best], options) ? best : LoadBalance(options);
}

}  // namespace

std::span<const PolicyEntry<RoutingPolicy>> RoutingPolicies() {
  static constexpr std::array<PolicyEntry<RoutingPolicy>, 6> kTable = {{
      {"locality", "a node with the model on a GPU first, then the least loaded", {.choose = &Locality}},
      {"bounded-locality",
       "locality, while that node has at most five quarters of its part of the requests",
       {.choose = &BoundedLocality}},
      {"load-balance", "the least loaded node", {.choose = &LoadBalance}},
      {"first-idle", "whichever GPU of the cluster is idle", {.by_gpu = GpuRouting{}}},
      {"lalb",
       "an idle GPU of the cluster takes the first request whose model it has (003)",
       {.by_gpu = GpuRouting{.limit = 0}}},
      {"lalb-o3",
       "lalb out of order: a request is passed at most 25 times",
       {.by_gpu = GpuRouting{.limit = 25}}},
  }};
  return kTable;
}

absl::StatusOr<RoutingPolicy> FindRoutingPolicy(std::string_view name) {
  TROUPE_ASSIGN_OR_RETURN(const auto limit, NumberBehind("routing", name, "lalb-o3="));
  if (limit) return RoutingPolicy{.by_gpu = GpuRouting{.limit = limit}};
  return FindPolicy<RoutingPolicy>("routing", name, RoutingPolicies());
}

}  // namespace troupe::cluster

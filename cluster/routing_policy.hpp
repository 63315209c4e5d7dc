// The `routing` slot: which node gets a request, among those that hold its model and have a credit left.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/policy.hpp"

namespace troupe::cluster {

struct NodeOption {
  std::string_view name{};
  bool resident = false;  // on one of its GPUs, as far as the router knows
  std::uint64_t in_flight = 0;
  std::uint64_t limit = 0;
};

// The index of the chosen option. Pure; `options` is not empty and sorted by name.
using RoutingPolicy = std::size_t (*)(std::span<const NodeOption> options);

// `locality` (default): a node with the model on a GPU before one with a host copy, then the smallest share
//   of used credits.
// `bounded-locality`: so long as that node has no more than its part of what the options have in flight and a
//   quarter; else the smallest share. For nodes that grant many more requests than they run in good time.
// `load-balance`: the smallest share of used credits. Ties: most credits left, then the name.
[[nodiscard]] std::span<const PolicyEntry<RoutingPolicy>> RoutingPolicies();
[[nodiscard]] absl::StatusOr<RoutingPolicy> FindRoutingPolicy(std::string_view name);

}  // namespace troupe::cluster

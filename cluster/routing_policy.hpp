// The `routing` slot: which node gets a request, among those that hold its model and have a credit left; or which GPU of
// which node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/policy.hpp"
#include "base/units.hpp"

namespace troupe::cluster {

struct NodeOption {
  std::string_view name{};
  bool resident = false;  // on one of its GPUs, as far as the router knows
  std::uint64_t in_flight = 0;
  std::uint64_t limit = 0;
  Duration run{};          // how long the request's run takes there; zero: not known, or not asked for
  Duration ahead{};        // the same of all that is in flight there, added up
  std::uint32_t gpus = 0;  // how many share this work; 0: not known
};

// How a router names the GPU of each request (cluster/requests/gpu_turns.hpp).
struct GpuRouting {
  // Locality-aware load balancing: a request that was passed more often than this is placed when it is next in
  // order, hit or miss. Empty: each idle GPU takes the most urgent request.
  std::optional<std::uint32_t> limit{};
};

// Whether a run at one node is so much longer than at another that the kinds of their GPUs must differ: by less than a half
// they differ for their inputs, and for what runs beside them.
[[nodiscard]] bool IsClearlyLonger(Duration run, Duration other);
// The shortest run of the options, when the run at another option is clearly longer; else nothing: the nodes count as alike.
[[nodiscard]] std::optional<Duration> ShortestOfKinds(std::span<const NodeOption> options);
// How long the request would take at the node: its run, behind what the node's GPUs have been given. `limit` is not 0.
[[nodiscard]] Duration EndAt(const NodeOption& option);

// Whether a node's work is what the node tells of all routers, or what this router has sent there.
enum class NodeWork { kOfAll, kOwn };
// Whether nodes count as alike, or runs take at each node what they have taken there (cluster/requests/node_runs.hpp).
enum class NodeKinds { kLearned, kAlike };

// One of the first two is set. `choose`: the index of the chosen option. Pure; `options` is not empty and sorted by name.
struct RoutingPolicy {
  std::size_t (*choose)(std::span<const NodeOption> options) = nullptr;
  std::optional<GpuRouting> by_gpu{};
  NodeKinds kinds = NodeKinds::kLearned;
  NodeWork work = NodeWork::kOfAll;
};

// `locality` (default): the node where the request ends first, by what the GPUs of each have to do for all routers, in time of
//   runs; a node that has the model on a GPU goes before it, unless the request ends clearly later there. Where it is not known
//   how long the request's run takes: a node with the model on a GPU, then the one with the smallest share of used credits.
// `locality-own-work`: the same, by what this router alone has sent.
// `locality-resident-first`: a node with the model on a GPU before one with a host copy, then the node with the least to do. Where
//   runs take clearly longer at some node than at another, it is `locality`.
// `locality-by-count`: the same, but for the time: requests in flight count alike.
// `locality-kind-blind`: by count, and as if runs took equally long at all nodes.
// `bounded-locality`: so long as that node has no more than its part of what the options have in flight and a
//   quarter; else the smallest share. For nodes that grant many more requests than they run in good time.
// `load-balance`: the smallest share of used credits. Ties: most credits left, then the name.
// The next ones name a GPU of the cluster, and the node obeys. They need nodes that tell of their GPUs, which those with
// isolated runtimes do not.
// `first-idle`: whichever GPU is idle, whether it has the model or not (003's baseline).
// `lalb`, `lalb-o3`, `lalb-o3=LIMIT`: locality-aware load balancing (003) over the GPUs of all nodes; others pass a
//   request at most once, 25 or LIMIT times.
[[nodiscard]] std::span<const PolicyEntry<RoutingPolicy>> RoutingPolicies();
[[nodiscard]] absl::StatusOr<RoutingPolicy> FindRoutingPolicy(std::string_view name);

}  // namespace troupe::cluster

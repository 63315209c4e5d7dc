#include "cluster/routing_policy.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/status.hpp"

namespace troupe::cluster {

namespace {

// Until when each option would have run the request.
std::vector<Duration> EndsOf(std::span<const NodeOption> options) {
  std::vector<Duration> ends;
  for (const NodeOption& option : options) ends.push_back(EndAt(option));
  return ends;
}

// The same where the runs of some options take clearly longer; else none.
std::vector<Duration> EndsOfKinds(std::span<const NodeOption> options) {
  return ShortestOfKinds(options) ? EndsOf(options) : std::vector<Duration>();
}

std::size_t EndsFirst(const std::vector<Duration>& ends) {
  return static_cast<std::size_t>(std::ranges::min_element(ends) - ends.begin());
}

// The option where the request ends first. An option that has the model on a GPU goes before it, unless the request ends clearly
// later there.
std::size_t EndsFirstWithModel(std::span<const NodeOption> options, const std::vector<Duration>& ends) {
  std::size_t best = EndsFirst(ends);
  const Duration first = ends[best];
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (!options[i].resident || IsClearlyLonger(ends[i], first)) continue;
    if (!options[best].resident || ends[i] < ends[best]) best = i;
  }
  return best;
}

// True when `a` has used a smaller share of its credits, or has more of them left.
bool LessLoaded(const NodeOption& a, const NodeOption& b) {
  const std::uint64_t left = a.in_flight * b.limit;
  const std::uint64_t right = b.in_flight * a.limit;
  if (left != right) return left < right;
  return a.limit - a.in_flight > b.limit - b.in_flight;
}

// A node that has not told the number is taken to grant as many credits for each GPU as most nodes do.
double GpusOf(const NodeOption& option) {
  constexpr double kCreditsOfAGpu = 8;
  return option.gpus > 0 ? option.gpus : static_cast<double>(option.limit) / kCreditsOfAGpu;
}

// The same by what the GPUs of each have to do, where it is known how long the request's run takes.
bool LessToDo(const NodeOption& a, const NodeOption& b) {
  const bool known = a.run > Duration::zero() && b.run > Duration::zero();
  const double left = ToSeconds(a.ahead) * GpusOf(b);
  const double right = ToSeconds(b.ahead) * GpusOf(a);
  return known && left != right ? left < right : LessLoaded(a, b);
}

std::size_t LoadBalance(std::span<const NodeOption> options) {
  if (const auto ends = EndsOfKinds(options); !ends.empty()) return EndsFirst(ends);
  std::size_t best = 0;
  for (std::size_t i = 1; i < options.size(); ++i) {
    if (LessLoaded(options[i], options[best])) best = i;
  }
  return best;
}

// The first in order of those with the model on a GPU; of all, where none has it there.
std::size_t LocalFirst(std::span<const NodeOption> options,
                       bool (*before)(const NodeOption& a, const NodeOption& b)) {
  if (const auto ends = EndsOfKinds(options); !ends.empty()) return EndsFirstWithModel(options, ends);
  std::size_t best = 0;
  for (std::size_t i = 1; i < options.size(); ++i) {
    const NodeOption& option = options[i];
    if (option.resident != options[best].resident ? option.resident : before(option, options[best])) best = i;
  }
  return best;
}

std::size_t ResidentFirst(std::span<const NodeOption> options) {
  return LocalFirst(options, &LessToDo);
}

std::size_t Locality(std::span<const NodeOption> options) {
  if (std::ranges::any_of(options, [](const auto& option) { return option.run == Duration(); }))
    return ResidentFirst(options);
  return EndsFirstWithModel(options, EndsOf(options));
}

std::size_t LocalityByCount(std::span<const NodeOption> options) {
  return LocalFirst(options, &LessLoaded);
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
  const std::size_t best = LocalityByCount(options);
  return WithinBound(options[best], options) ? best : LoadBalance(options);
}

}  // namespace

bool IsClearlyLonger(Duration run, Duration other) {
  return ToSeconds(run) > 1.5 * ToSeconds(other);
}

std::optional<Duration> ShortestOfKinds(std::span<const NodeOption> options) {
  const auto [fastest, slowest] = std::ranges::minmax(options, {}, &NodeOption::run);
  return IsClearlyLonger(slowest.run, fastest.run) ? std::optional(fastest.run) : std::nullopt;
}

Duration EndAt(const NodeOption& option) {
  const double given = ToSeconds(option.ahead) + ToSeconds(option.run);
  return FromSeconds(std::max(ToSeconds(option.run), given / std::max(1.0, GpusOf(option))));
}

std::span<const PolicyEntry<RoutingPolicy>> RoutingPolicies() {
  static constexpr std::array<PolicyEntry<RoutingPolicy>, 10> kTable = {{
      {"locality",
       "the node where the request ends first; one with the model on a GPU, unless it ends clearly later there",
       {.choose = &Locality}},
      {"locality-own-work",
       "locality, by the work that this gateway alone has sent",
       {.choose = &Locality, .work = NodeWork::kOwn}},
      {"locality-resident-first",
       "a node with the model on a GPU first, then the one with the least to do",
       {.choose = &ResidentFirst}},
      {"locality-by-count", "locality, as if all requests took equally long", {.choose = &LocalityByCount}},
      {"bounded-locality",
       "locality, while that node has at most five quarters of its part of the requests",
       {.choose = &BoundedLocality}},
      {"locality-kind-blind",
       "locality by count, as if all nodes were equally fast",
       {.choose = &LocalityByCount, .kinds = NodeKinds::kAlike}},
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

// The `prefetch` slot: when a model comes to a GPU of the node.
#pragma once

#include <span>
#include <string_view>

#include "base/policy.hpp"

namespace troupe::node {

enum class PrefetchRule { kAsked, kAhead, kForecast };

// `asked`: for a request, which then waits for it.
// `ahead`: also ahead of requests. Where a load occupies its GPU, a model comes while a GPU has nothing to
//   do, and a third of all GPUs stay free for requests. Where runs go on beneath loads, it comes while no load
//   is on its link and links are idle for half of the time. A model gets one more copy when its requests keep
//   its copies busy for a tenth of the time and no request is late (node/scheduling/model_demand.hpp). The
//   copy has to save more waiting within a minute than it takes to bring, and four times what its victims
//   lose. A model that is adopted, and whose run time is known, comes before its first request, into free
//   room.
// `forecast` (default): as `ahead`; and where runs go on beneath loads, a model on no GPU with requests at
//   regular intervals (node/scheduling/arrival_forecast.hpp) comes before its next request, when a link is
//   idle, in the place of models without waiting requests.
[[nodiscard]] std::span<const PolicyEntry<PrefetchRule>> PrefetchPolicies();
[[nodiscard]] absl::StatusOr<PrefetchRule> FindPrefetchPolicy(std::string_view name);

}  // namespace troupe::node

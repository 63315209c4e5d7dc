// The `prefetch` slot: when a model comes to a GPU of the node.
#pragma once

#include <span>
#include <string_view>

#include "base/policy.hpp"

namespace troupe::node {

enum class PrefetchRule { kAsked, kAhead, kForecast };

// `asked`: for a request, which then waits for it.
// `ahead`: also ahead of requests: while a GPU has nothing to do (where a load occupies it; a third of all
//   GPUs stay free for requests), or no load is on its link and links are idle for half of the time (where
//   runs go on meanwhile), a model comes whose copies it keeps busy for a tenth of the time by itself, when
//   nothing is late (node/scheduling/model_demand.hpp). The copy has to save more waiting within a minute
//   than it takes to bring, and four times what those lose that go for it. A model that is adopted, and whose
//   run is known, comes before anybody asks, into room that nothing else has.
// `forecast` (default): as `ahead`; and where runs go on beneath loads, a model that no GPU has and that is
//   asked for at regular intervals (node/scheduling/arrival_forecast.hpp) comes before its next request, in a
//   moment in which a link is idle, for what nobody waits for.
[[nodiscard]] std::span<const PolicyEntry<PrefetchRule>> PrefetchPolicies();
[[nodiscard]] absl::StatusOr<PrefetchRule> FindPrefetchPolicy(std::string_view name);

}  // namespace troupe::node

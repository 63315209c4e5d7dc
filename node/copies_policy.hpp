// The `copies` slot: when a model comes to a GPU of the node.
#pragma once

#include <span>
#include <string_view>

#include "base/policy.hpp"

namespace troupe::node {

enum class CopiesRule { kAsked, kAhead };

// `asked`: for a request, which then waits for it.
// `ahead` (default): also ahead of requests: while a GPU has nothing to do (where a load occupies it; a third
// of
//   all GPUs stay free for requests), or no load is on its link and links are idle for half of the time
//   (where runs go on meanwhile), a model comes whose copies it keeps busy for a tenth of the time by itself,
//   when nothing is late (node/model_demand.hpp). The copy has to save more waiting within a minute than it
//   takes to bring, and four times what those lose that go for it.
[[nodiscard]] std::span<const PolicyEntry<CopiesRule>> CopiesPolicies();
[[nodiscard]] absl::StatusOr<CopiesRule> FindCopiesPolicy(std::string_view name);

}  // namespace troupe::node

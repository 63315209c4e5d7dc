// The `fetching` slot: from which nodes a node fetches a model that several nodes are to have.
#pragma once

#include <span>
#include <string_view>

#include "base/policy.hpp"

namespace troupe::cluster {

// `relay` (default): from nodes that have it. When as many nodes fetch it already as have it, a further node follows a node that
// still fetches, and takes each range when it has come there (model_relays.hpp).
// `holders`: from nodes that have it, however many fetch it from them.
enum class FetchPolicy { kRelay, kHolders };

[[nodiscard]] std::span<const PolicyEntry<FetchPolicy>> FetchPolicies();
[[nodiscard]] absl::StatusOr<FetchPolicy> FindFetchPolicy(std::string_view name);

}  // namespace troupe::cluster

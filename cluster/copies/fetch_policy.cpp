#include "cluster/copies/fetch_policy.hpp"

#include <array>

namespace troupe::cluster {

std::span<const PolicyEntry<FetchPolicy>> FetchPolicies() {
  static constexpr std::array<PolicyEntry<FetchPolicy>, 2> kTable = {{
      {"relay", "nodes that fetch a model at the same time hand it on to each other as it arrives",
       FetchPolicy::kRelay},
      {"holders", "a node fetches a model from nodes that have all of it", FetchPolicy::kHolders},
  }};
  return kTable;
}

absl::StatusOr<FetchPolicy> FindFetchPolicy(std::string_view name) {
  return FindPolicy<FetchPolicy>("fetching", name, FetchPolicies());
}

}  // namespace troupe::cluster

#include "gpu/swap/swap_policy.hpp"

#include <array>

namespace troupe::gpu {

std::span<const PolicyEntry<SwapPolicy>> SwapPolicies() {
  using Cut = SwapPolicy::Cut;
  static constexpr std::array<PolicyEntry<SwapPolicy>, 4> kPolicies = {{
      {"pageable",
       "from memory that the device does not know; runs when all is there",
       {.registered = false, .overlap = false, .cut = Cut::kWhole}},
      {"whole",
       "from registered memory; runs when all is there",
       {.registered = true, .overlap = false, .cut = Cut::kWhole}},
      {"per-tensor",
       "a copy per tensor; each step waits for its tensors",
       {.registered = true, .overlap = true, .cut = Cut::kTensors}},
      {"grouped",
       "a copy per group of tensors; each step waits for its groups",
       {.registered = true, .overlap = true, .cut = Cut::kGroups}},
  }};
  return kPolicies;
}

absl::StatusOr<SwapPolicy> FindSwapPolicy(std::string_view name) {
  return FindPolicy("swap", name.empty() ? kDefaultSwap : name, SwapPolicies());
}

std::span<const PolicyEntry<LinkSharing>> LinkSharings() {
  static constexpr std::array<PolicyEntry<LinkSharing>, 3> kSharings = {{
      {"exclusive", "first come, first served, each to its end", LinkSharing::kExclusive},
      {"shared", "block by block in turn", LinkSharing::kShared},
      {"deadline", "the blocks of the most urgent first, equals in turn", LinkSharing::kDeadline},
  }};
  return kSharings;
}

absl::StatusOr<LinkSharing> FindLinkSharing(std::string_view name) {
  return FindPolicy("link sharing", name.empty() ? kDefaultLinkSharing : name, LinkSharings());
}

Urgency UrgencyOf(LinkSharing sharing, Time arrival, std::optional<Time> deadline) {
  switch (sharing) {
    case LinkSharing::kExclusive:
      return arrival.time_since_epoch().count();
    case LinkSharing::kShared:
      return 0;
    case LinkSharing::kDeadline:
      if (deadline) return deadline->time_since_epoch().count();
      return (arrival.time_since_epoch() / kUnhurried + 2) * kUnhurried.count();
  }
  return 0;
}

}  // namespace troupe::gpu

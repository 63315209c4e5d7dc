// SWAP POLICIES: how a model comes onto a device, and whose blocks go first on a link. Names for the `swap`
// slot and for `link-sharing`; gpu/swap carries them out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/policy.hpp"
#include "base/units.hpp"

namespace troupe::gpu {

// 002 section 4.3 and Fig. 7: each row of the table takes one step of the ladder.
struct SwapPolicy {
  enum class Cut { kWhole, kTensors, kGroups };
  bool registered = true;  // the host region is known to the device; else its copies are staged on their way
  bool overlap = true;     // a run starts when the first group is there; else when all are
  Cut cut = Cut::kGroups;
};
inline constexpr std::string_view kDefaultSwap = "grouped";
[[nodiscard]] std::span<const PolicyEntry<SwapPolicy>> SwapPolicies();
// The empty name is the default. NotFound lists the names.
[[nodiscard]] absl::StatusOr<SwapPolicy> FindSwapPolicy(std::string_view name);

// 004 section 7: which transfers share a link.
enum class LinkSharing { kExclusive, kShared, kDeadline };
inline constexpr std::string_view kDefaultLinkSharing = "deadline";
[[nodiscard]] std::span<const PolicyEntry<LinkSharing>> LinkSharings();
[[nodiscard]] absl::StatusOr<LinkSharing> FindLinkSharing(std::string_view name);

// Smaller goes first, equal ones take turns. Comparable between the processes of one machine.
using Urgency = std::int64_t;
// A transfer without a deadline is as urgent as if it had one this long after its arrival, or up to twice as
// long, so that transfers that arrive together are equals. So it yields to transfers with a deadline, but not
// for ever.
inline constexpr Duration kUnhurried = std::chrono::seconds(1);
[[nodiscard]] Urgency UrgencyOf(LinkSharing sharing, Time arrival, std::optional<Time> deadline);

}  // namespace troupe::gpu

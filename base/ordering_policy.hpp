// The `ordering` slot: which of the waiting requests goes next. Routers and node controllers order alike.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/policy.hpp"
#include "base/units.hpp"

namespace troupe {

// What a request that names no priority gets (0 on the wire). Smaller is more urgent.
inline constexpr std::uint32_t kDefaultPriority = 100;

// What an ordering policy may look at.
struct Urgency {
  std::uint32_t priority = 0;  // 0: kDefaultPriority
  Time arrival{};
  Time deadline{};  // target; Time::max() when the function has none
};

// The smallest key goes first. `sequence` makes keys unique and breaks ties by arrival.
struct OrderingKey {
  std::uint32_t priority = kDefaultPriority;
  std::int64_t rank = 0;
  std::uint64_t sequence = 0;
  auto operator<=>(const OrderingKey&) const = default;
};

// Gives the rank inside one priority. `fifo`: time of arrival. `edf`: the deadline (default).
using OrderingPolicy = std::int64_t (*)(const Urgency&);

[[nodiscard]] std::span<const PolicyEntry<OrderingPolicy>> OrderingPolicies();
[[nodiscard]] absl::StatusOr<OrderingPolicy> FindOrderingPolicy(std::string_view name);
[[nodiscard]] OrderingKey MakeOrderingKey(OrderingPolicy policy, const Urgency& urgency,
                                          std::uint64_t sequence);

}  // namespace troupe

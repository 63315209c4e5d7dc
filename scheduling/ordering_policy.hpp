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

// Where a function's requests stand among those of others (scheduling/slo_order.hpp); equal for all unless the
// policy ranks functions.
struct FunctionPlace {
  std::uint32_t group = 0;
  std::int64_t score = 0;
  [[gnu::always_inline]] auto operator<=>(const FunctionPlace&) const = default;
};

// The smallest key goes first. `sequence` makes keys unique and breaks ties by arrival.
struct OrderingKey {
  std::uint32_t priority = kDefaultPriority;
  FunctionPlace place{};
  std::int64_t rank = 0;
  std::uint64_t sequence = 0;
  // What a queue does most; too long for the compiler to put it inline by itself.
  [[gnu::always_inline]] auto operator<=>(const OrderingKey&) const = default;
};

struct SloRules;  // scheduling/slo_order.hpp

// How requests yield that can no longer meet their deadline (scheduling/late_queue.hpp).
struct LateRules {
  std::uint32_t turn = 16;  // of so many that go, one is late, as long as some are
  bool budgets = false;     // those yield too whose function has spent its error budget
};

// `rank` orders the requests of one priority, inside one place. `slo`: functions are ranked by how near they
// are to their SLO; null: all functions alike. `late`: late requests yield; null: they stay where they are.
//   `edf`: by the deadline.   `fifo`: by the time of arrival.
//   `edf-late-last`: by the deadline, but a request that can no longer meet it goes behind all that can. Late
// requests too are ordered by deadline, so that the request that is late for longest comes first: none of
// them can be in time any more.
//   `edf-error-budget` (default): the same, and a request of a function that will not meet its SLO any more
//   (scheduling/error_budgets.hpp) goes with the late ones from its arrival on.   `slo-aware`: Torpor's two groups
//   of functions (002, 5.2 and A.3), as in the paper; arrival inside one. `slo-aware-released`: as in
//   Torpor's released router.
struct OrderingPolicy {
  std::int64_t (*rank)(const Urgency&) = nullptr;
  const SloRules* slo = nullptr;
  const LateRules* late = nullptr;
};

[[nodiscard]] std::span<const PolicyEntry<OrderingPolicy>> OrderingPolicies();
[[nodiscard]] absl::StatusOr<OrderingPolicy> FindOrderingPolicy(std::string_view name);
[[nodiscard]] OrderingKey MakeOrderingKey(const OrderingPolicy& policy, const Urgency& urgency,
                                          std::uint64_t sequence, FunctionPlace place = {});

// The key of a request that yields, and whether one does.
[[nodiscard]] OrderingKey LateKey(OrderingKey key);
[[nodiscard]] bool IsLate(const OrderingKey& key);
// When a request that came at `now` is late if it has not begun: it could end in time if it began at once,
// but not behind another run like its own. Of what it has to spare at its arrival that takes half at most.
// Time::max(): it has no deadline.
[[nodiscard]] Time LatestBegin(Time deadline, Duration run, Time now);

}  // namespace troupe

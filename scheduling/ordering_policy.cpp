#include "scheduling/ordering_policy.hpp"

#include <algorithm>
#include <array>

#include "scheduling/slo_order.hpp"

namespace troupe {

namespace {

std::int64_t Fifo(const Urgency& urgency) {
  return urgency.arrival.time_since_epoch().count();
}
std::int64_t EarliestDeadlineFirst(const Urgency& urgency) {
  return urgency.deadline.time_since_epoch().count();
}

constexpr LateRules kLateRules;
constexpr LateRules kBudgetRules{.budgets = true};
constexpr FunctionPlace kLatePlace{.group = 1};

}  // namespace

std::span<const PolicyEntry<OrderingPolicy>> OrderingPolicies() {
  static const std::array<PolicyEntry<OrderingPolicy>, 6> kTable = {{
      {"edf", "earliest deadline first inside a priority", {&EarliestDeadlineFirst}},
      {"edf-late-last",
       "earliest deadline first, and what can no longer meet its deadline behind all that can",
       {.rank = &EarliestDeadlineFirst, .late = &kLateRules}},
      {"edf-error-budget",
       "the same, and those yield too whose functions will not meet their SLO any more",
       {.rank = &EarliestDeadlineFirst, .late = &kBudgetRules}},
      {"fifo", "order of arrival inside a priority", {&Fifo}},
      {"slo-aware",
       "functions that can still meet their SLO before those that cannot, as Torpor's paper has it",
       {&Fifo, &kPaperSloRules}},
      {"slo-aware-released", "the same as Torpor's released router does it", {&Fifo, &kReleasedSloRules}},
  }};
  return kTable;
}

absl::StatusOr<OrderingPolicy> FindOrderingPolicy(std::string_view name) {
  return FindPolicy<OrderingPolicy>("ordering", name, OrderingPolicies());
}

OrderingKey MakeOrderingKey(const OrderingPolicy& policy, const Urgency& urgency, std::uint64_t sequence,
                            FunctionPlace place) {
  return {.priority = urgency.priority == 0 ? kDefaultPriority : urgency.priority,
          .place = place,
          .rank = policy.rank(urgency),
          .sequence = sequence};
}

OrderingKey LateKey(OrderingKey key) {
  key.place = kLatePlace;
  return key;
}

bool IsLate(const OrderingKey& key) {
  return key.place == kLatePlace;
}

Time LatestBegin(Time deadline, Duration run, Time now) {
  if (deadline == Time::max()) return deadline;
  const Duration spare = std::max(deadline - now - run, Duration());
  return deadline - run - std::min(spare / 2, run);
}

}  // namespace troupe

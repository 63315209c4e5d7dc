#include "base/ordering_policy.hpp"

#include <array>

#include "base/slo_order.hpp"

namespace troupe {

namespace {

std::int64_t Fifo(const Urgency& urgency) {
  return urgency.arrival.time_since_epoch().count();
}
std::int64_t EarliestDeadlineFirst(const Urgency& urgency) {
  return urgency.deadline.time_since_epoch().count();
}

}  // namespace

std::span<const PolicyEntry<OrderingPolicy>> OrderingPolicies() {
  static const std::array<PolicyEntry<OrderingPolicy>, 4> kTable = {{
      {"edf", "earliest deadline first inside a priority", {&EarliestDeadlineFirst}},
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

}  // namespace troupe

// PACKING POLICIES by name: how instances come to rectangles of GPUs. Pure.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/policy.hpp"

namespace troupe::cluster {

struct PackingPolicy {
  // What an instance's rectangle takes of the SMs.
  enum class Sms {
    kAsAsked,
    kAll,  // instances share a GPU by time only
  };
  // What happens to instances that are booked.
  enum class Moves {
    kNever,
    kReplan,  // they move when an instance fits nowhere, or a GPU is fragmented
  };
  Sms sms = Sms::kAsAsked;
  Moves moves = Moves::kReplan;
};

//   best-area-fit         001's Algorithm 2, corrected: instances stay where they are
//   replan                the same, and a re-plan with the fewest moves (cluster/rectangles/replan.hpp): ours
//   time-sharing          each instance has all SMs for its part of the time: what 001 compares with (section 5.4)
//   time-sharing-replan   the same with re-plans, so that it needs as few GPUs as sharing by time can
[[nodiscard]] std::span<const PolicyEntry<PackingPolicy>> PackingPolicies();
[[nodiscard]] absl::StatusOr<PackingPolicy> FindPackingPolicy(std::string_view name);

}  // namespace troupe::cluster

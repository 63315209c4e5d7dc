#include "cluster/rectangles/packing_policy.hpp"

#include <array>

namespace troupe::cluster {

std::span<const PolicyEntry<PackingPolicy>> PackingPolicies() {
  using enum PackingPolicy::Sms;
  using enum PackingPolicy::Moves;
  static constexpr std::array<PolicyEntry<PackingPolicy>, 4> kTable = {{
      {"replan",
       "the free rectangle that leaves the least area; instances move when nothing fits",
       {.sms = kAsAsked, .moves = kReplan}},
      {"best-area-fit",
       "the free rectangle that leaves the least area; instances stay",
       {.sms = kAsAsked, .moves = kNever}},
      {"time-sharing", "all SMs for a part of the time", {.sms = kAll, .moves = kNever}},
      {"time-sharing-replan",
       "all SMs for a part of the time; instances move when nothing fits",
       {.sms = kAll, .moves = kReplan}},
  }};
  return kTable;
}

absl::StatusOr<PackingPolicy> FindPackingPolicy(std::string_view name) {
  return FindPolicy("packing", name, PackingPolicies());
}

}  // namespace troupe::cluster

#include "gpu/sharing/sharing_policy.hpp"

#include <array>

namespace troupe::gpu {

std::span<const PolicyEntry<SharingPolicy>> SharingPolicies() {
  using Space = SharingPolicy::Space;
  using Behind = SharingPolicy::Behind;
  static constexpr std::array<PolicyEntry<SharingPolicy>, 5> kPolicies = {{
      {"fast", "quotas of time and shares of the SMs; what does not fit stops those behind it", {}},
      {"fast-bypass", "as fast, but what fits passes what does not, 16 times", {.behind = Behind::kPass}},
      {"time-sharing", "one run at a time on all SMs, within quotas of time", {.space = Space::kOne}},
      {"exclusive",
       "one function at a time has the GPU, until no run of it is left",
       {.space = Space::kOne, .quotas = false, .one_function = true}},
      {"racing",
       "as many runs as there are streams, on all SMs, without quotas",
       {.space = Space::kEverywhere, .quotas = false}},
  }};
  return kPolicies;
}

absl::StatusOr<SharingPolicy> FindSharingPolicy(std::string_view name) {
  return FindPolicy("sharing", name.empty() ? kDefaultSharing : name, SharingPolicies());
}

}  // namespace troupe::gpu

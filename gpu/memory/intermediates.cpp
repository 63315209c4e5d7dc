#include "gpu/memory/intermediates.hpp"

#include <array>

namespace troupe::gpu {

std::span<const PolicyEntry<IntermediatesPolicy>> Intermediates() {
  static constexpr std::array<PolicyEntry<IntermediatesPolicy>, 5> kTable = {{
      {"elastic",
       "in idle device memory, moved to the host's when that is needed, and copied there ahead",
       {}},
      {"no-pressure", "in idle device memory, moved to the host's when that is needed", {.ahead = false}},
      {"no-movement", "in idle device memory, and they stay there", {.moves = false, .ahead = false}},
      {"static",
       "in an eighth of device memory, set aside at the start",
       {.percent = 12, .fixed = true, .moves = false, .ahead = false}},
      {"host-only", "in host memory", {.percent = 0, .moves = false, .ahead = false}},
  }};
  return kTable;
}

absl::StatusOr<IntermediatesPolicy> FindIntermediates(std::string_view name) {
  return FindPolicy<IntermediatesPolicy>("intermediates", name.empty() ? kDefaultIntermediates : name,
                                         Intermediates());
}

}  // namespace troupe::gpu

#include "gpu/memory/intermediates.hpp"

#include <array>

namespace troupe::gpu {

std::span<const PolicyEntry<IntermediatesPolicy>> Intermediates() {
  static constexpr std::array<PolicyEntry<IntermediatesPolicy>, 3> kTable = {{
      {"elastic", "in idle device memory, moved to the host's when that is needed", {}},
      {"no-movement", "in idle device memory, and they stay there", {.moves = false}},
      {"host-only", "in host memory", {.on_device = false, .moves = false}},
  }};
  return kTable;
}

absl::StatusOr<IntermediatesPolicy> FindIntermediates(std::string_view name) {
  return FindPolicy<IntermediatesPolicy>("intermediates", name.empty() ? kDefaultIntermediates : name,
                                         Intermediates());
}

}  // namespace troupe::gpu

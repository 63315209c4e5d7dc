// For which devices a model's weights are packed (Model.packed_for).
#pragma once

#include <string_view>

namespace troupe::proto {

// Behind the target of a model whose weights are packed in BF16. Versions that cannot read such weights take it for the
// target of another device, and use the canonical model.
inline constexpr std::string_view kPackedInBf16 = "+bf16";

// Whether a device of this target reads what was packed for `packed`.
[[nodiscard]] inline bool IsPackedFor(std::string_view packed, std::string_view target) {
  if (packed.ends_with(kPackedInBf16)) packed.remove_suffix(kPackedInBf16.size());
  return packed == target;
}

}  // namespace troupe::proto

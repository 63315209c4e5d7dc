#include "base/policy.hpp"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace troupe {

absl::Status UnknownPolicy(std::string_view slot, std::string_view name,
                           const std::vector<std::string_view>& known) {
  return absl::NotFoundError(absl::StrCat(
      "no ", std::string(slot), " policy is called '", std::string(name), "'; choose one of: ",
      absl::StrJoin(known, ", ", [](std::string* out, std::string_view text) { out->append(text); })));
}

std::span<const PolicyEntry<PolicyNames>> Presets() {
  static const std::array<PolicyEntry<PolicyNames>, 2> kPresets = {{
      {"troupe", "requests go where their model is, the earliest deadline first", PolicyNames{}},
      {"load-balance", "requests go to the least loaded node in order of arrival",
       PolicyNames{
           .routing = "load-balance", .ordering = "fifo", .gpu = "most-free", .swap = {}, .binding = {}}},
  }};
  return kPresets;
}

absl::StatusOr<PolicyNames> FindPreset(std::string_view name) {
  return FindPolicy<PolicyNames>("preset", name, Presets());
}

}  // namespace troupe

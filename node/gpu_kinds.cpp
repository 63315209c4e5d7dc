#include "node/gpu_kinds.hpp"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace troupe::node {

GpuKinds::GpuKinds(const std::vector<GpuSetup>& gpus, KindRule rule) : rule_(rule) {
  for (const GpuSetup& gpu : gpus) {
    const auto at = std::ranges::find(names_, gpu.kind);
    devices_.push_back(static_cast<KindId>(at - names_.begin()));
    if (at == names_.end()) names_.push_back(gpu.kind);
  }
  if (names_.empty() || (rule == KindRule::kBlind && names_.size() > 1)) {
    names_ = {std::string()};
    std::ranges::fill(devices_, KindId{0});
  }
}

std::optional<KindId> GpuKinds::Find(std::string_view name) const {
  const auto at = std::ranges::find(names_, name);
  return at == names_.end() ? std::nullopt : std::optional(static_cast<KindId>(at - names_.begin()));
}

std::optional<KindId> GpuKinds::Remember(std::string_view name) {
  if (name.empty()) return 0;
  if (const auto known = Find(name)) return known;
  const bool is_name = name.size() <= kLongestName &&
                       std::ranges::all_of(name, [](unsigned char c) { return absl::ascii_isprint(c); });
  if (rule_ == KindRule::kBlind || !is_name || names_.size() >= kMost) return std::nullopt;
  names_.emplace_back(name);
  return static_cast<KindId>(names_.size() - 1);
}

}  // namespace troupe::node

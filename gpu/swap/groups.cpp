#include "gpu/swap/groups.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace troupe::gpu {

std::vector<Group> CutEvenly(Bytes weights, Bytes size) {
  TROUPE_CHECK(size > Bytes(0), "groups have a size");
  std::vector<Group> groups;
  std::uint64_t at = 0;
  do {
    groups.push_back({at, std::min(size.count(), weights.count() - at)});
    at += groups.back().length;
  } while (at < weights.count());
  return groups;
}

std::vector<Group> CutByTensor(const proto::Model& model, Bytes weights) {
  std::vector<std::uint64_t> begins = {0};
  for (const proto::Weight& weight : model.weights()) {
    if (weight.length() > 0 && weight.offset() < weights.count()) begins.push_back(weight.offset());
  }
  std::ranges::sort(begins);
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  std::vector<Group> groups;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::uint64_t end = i + 1 < begins.size() ? begins[i + 1] : weights.count();
    groups.push_back({begins[i], end - begins[i]});
  }
  return groups;
}

std::vector<std::uint32_t> GroupsNeeded(const DevicePlan& plan, std::span<const Group> groups) {
  std::vector<std::uint32_t> needed;
  needed.reserve(plan.step_count());
  for (std::size_t step = 0; step < plan.step_count(); ++step) {
    std::uint64_t end = 0;
    for (const auto& [offset, length] : plan.step_weights(step)) {
      if (length > 0) end = std::max(end, offset + length);
    }
    // The first group that begins at or behind the last byte's successor is not needed any more.
    const auto behind =
        std::lower_bound(groups.begin(), groups.end(), end,
                         [](const Group& group, std::uint64_t byte) { return group.offset < byte; });
    needed.push_back(static_cast<std::uint32_t>(behind - groups.begin()));
  }
  return needed;
}

}  // namespace troupe::gpu

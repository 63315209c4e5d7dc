#include "scheduling/run_profile.hpp"

namespace troupe {

void RunProfile::Add(std::uint32_t share, std::uint32_t batch, Duration run) {
  if (share == 0 || batch == 0 || run <= Duration::zero()) return;
  by_batch_[batch][share] = 1 / ToSeconds(run);
}

double RunProfile::RateAt(const Rates& rates, std::uint32_t share) {
  const auto after = rates.lower_bound(share);
  if (after == rates.end()) return rates.rbegin()->second;
  const auto [right, high] = *after;
  if (after == rates.begin()) return high * share / right;
  const auto [left, low] = *std::prev(after);
  return low + (high - low) * (share - left) / (right - left);
}

std::optional<Duration> RunProfile::RunTime(std::uint32_t share, std::uint32_t batch) const {
  if (share == 0 || by_batch_.empty()) return std::nullopt;
  const auto after = by_batch_.lower_bound(batch);
  if (after == by_batch_.end()) return std::nullopt;
  const double high = 1 / RateAt(after->second, share);
  if (after->first == batch) return FromSeconds(high);
  if (after == by_batch_.begin()) return std::nullopt;
  const auto before = std::prev(after);
  const double low = 1 / RateAt(before->second, share);
  return FromSeconds(low + (high - low) * (batch - before->first) / (after->first - before->first));
}

}  // namespace troupe

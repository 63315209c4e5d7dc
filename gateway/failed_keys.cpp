#include "gateway/failed_keys.hpp"

#include <algorithm>

namespace troupe::gateway {

std::chrono::seconds FailedKeys::Count(const std::string& address, SteadyTime now) {
  const std::lock_guard lock(mutex_);
  if (!windows_.contains(address) && windows_.size() >= kMostAddresses) MakeRoom(now);
  auto& window = windows_.try_emplace(address, Window{now, 0}).first->second;
  if (now - window.begin >= kWindow) window = {now, 0};
  if (window.failures < kMostFailures) {
    ++window.failures;
    return std::chrono::seconds(0);
  }
  return std::chrono::ceil<std::chrono::seconds>(window.begin + kWindow - now);
}

std::size_t FailedKeys::addresses() const {
  const std::lock_guard lock(mutex_);
  return windows_.size();
}

// Windows that are over go first; when there is none, the oldest one goes.
void FailedKeys::MakeRoom(SteadyTime now) {
  std::erase_if(windows_, [now](const auto& entry) { return now - entry.second.begin >= kWindow; });
  if (windows_.size() < kMostAddresses) return;
  windows_.erase(std::min_element(windows_.begin(), windows_.end(), [](const auto& a, const auto& b) {
    return a.second.begin < b.second.begin;
  }));
}

}  // namespace troupe::gateway

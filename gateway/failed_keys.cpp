#include "gateway/failed_keys.hpp"

namespace troupe::gateway {

std::chrono::seconds FailedKeys::Count(const std::string& address, SteadyTime now) {
  const std::lock_guard lock(mutex_);
  MakeRoom(now, windows_.contains(address) ? kMostAddresses : kMostAddresses - 1);
  const auto [found, is_new] = windows_.try_emplace(address, Window{now, 0});
  if (is_new) begun_.emplace_back(now, address);
  auto& window = found->second;
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

void FailedKeys::MakeRoom(SteadyTime now, std::size_t most) {
  while (!begun_.empty() && (now - begun_.front().first >= kWindow || windows_.size() > most)) {
    windows_.erase(begun_.front().second);
    begun_.pop_front();
  }
}

}  // namespace troupe::gateway

#include "gpu/sharing/quota_window.hpp"

#include <algorithm>

namespace troupe::gpu {

Duration QuotaWindow::PartOf(std::uint32_t percent, const TimeQuota& quota) const {
  return length_ * percent / 100 * std::max<std::uint32_t>(quota.instances, 1);
}

// What of its use a later window is charged with: all that went beyond the limits of those before it.
Duration QuotaWindow::UsedIn(const Function& function, std::int64_t window) const {
  if (window <= function.window) return function.used;
  if (function.quota.limit == 0) return {};
  const Duration limit = PartOf(function.quota.limit, function.quota);
  return std::max(function.used - limit * (window - function.window), Duration(0));
}

void QuotaWindow::Advance(Function& function, Time now) const {
  const std::int64_t window = WindowAt(now);
  if (window <= function.window) return;
  function.used = UsedIn(function, window);
  function.window = window;
}

void QuotaWindow::Set(const std::string& function, const TimeQuota& quota, Time now) {
  const auto [found, is_new] = functions_.try_emplace(function);
  Function& entry = found->second;
  if (is_new) entry.window = WindowAt(now);
  if (entry.forgotten) --forgotten_;
  entry.forgotten = false;
  if (entry.quota == quota) return;
  Advance(entry, now);  // by the quota that there was
  entry.used = Rescaled(entry, quota);
  entry.quota = quota;
}

// Time that the former limit allowed is not owed under a smaller one: it only uses this window up. Time beyond the former limit
// stays owed.
Duration QuotaWindow::Rescaled(const Function& function, const TimeQuota& quota) const {
  if (quota.limit == 0) return function.used;
  const Duration before =
      function.quota.limit == 0 ? Duration::max() : PartOf(function.quota.limit, function.quota);
  const Duration debt = std::max(function.used - before, Duration(0));
  return std::min(function.used - debt, PartOf(quota.limit, quota)) + debt;
}

void QuotaWindow::Charge(const std::string& function, Duration used, Time now) {
  const auto found = functions_.find(function);
  if (found == functions_.end()) return;
  Advance(found->second, now);
  found->second.used += used;
}

bool QuotaWindow::HasTime(const std::string& function, Time now) const {
  const auto found = functions_.find(function);
  if (found == functions_.end() || found->second.quota.limit == 0) return true;
  return UsedIn(found->second, WindowAt(now)) < PartOf(found->second.quota.limit, found->second.quota);
}

Duration QuotaWindow::Missing(const std::string& function, Time now) const {
  const auto found = functions_.find(function);
  if (found == functions_.end()) return {};
  return PartOf(found->second.quota.request, found->second.quota) - UsedIn(found->second, WindowAt(now));
}

Duration QuotaWindow::Used(const std::string& function, Time now) const {
  const auto found = functions_.find(function);
  return found == functions_.end() ? Duration(0) : UsedIn(found->second, WindowAt(now));
}

Time QuotaWindow::Next(Time now) const {
  return Time(length_ * (WindowAt(now) + 1));
}

void QuotaWindow::Forget(const std::string& function, Time now) {
  const auto found = functions_.find(function);
  if (found == functions_.end()) return;
  if (!found->second.forgotten) ++forgotten_;
  found->second.forgotten = true;
  DropSettled(now);
}

// The time that a function has used of the present window is remembered until the window ends: a function that
// leaves and comes back meanwhile does not get the window anew.
void QuotaWindow::DropSettled(Time now) {
  if (forgotten_ == 0) return;
  const std::int64_t window = WindowAt(now);
  for (auto entry = functions_.begin(); entry != functions_.end();) {
    const auto here = entry++;
    if (!here->second.forgotten || UsedIn(here->second, window) > Duration(0)) continue;
    functions_.erase(here);
    --forgotten_;
  }
}

}  // namespace troupe::gpu

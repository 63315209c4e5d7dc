#include "gpu/sharing/token_scheduler.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.hpp"
#include "proto/gpu_instances.hpp"

namespace troupe::gpu {

namespace {
// The account of all functions without a quota; no function has this name.
const std::string kTogether;
}  // namespace

TokenScheduler::TokenScheduler(const SharingOptions& options, ShareLadder ladder)
    : policy_(options.policy),
      concurrency_(options.concurrency),
      window_(options.window),
      shares_(std::move(ladder),
              options.policy.space == SharingPolicy::Space::kOne ? 1 : options.concurrency) {
  window_.Set(kTogether, {.request = kLateBindingFloor}, Time());
}

void TokenScheduler::Join(const std::string& function, const proto::GpuSharing& sharing, Time now) {
  Function& entry = functions_[function];
  const bool had_quota = entry.runs > 0 && proto::HasQuota(entry.sharing);
  const bool has_quota = !function.empty() && proto::HasQuota(sharing);
  ++entry.runs;
  entry.sharing = sharing;
  if (has_quota) {
    window_.Set(function,
                {.request = sharing.quota_request(),
                 .limit = sharing.quota_limit(),
                 .instances = proto::InstancesOf(sharing, concurrency_)},
                now);
  }
  if (had_quota == has_quota) return;
  with_quota_ += has_quota ? 1 : -1;
  if (had_quota) window_.Forget(function, now);
}

void TokenScheduler::Leave(const std::string& function, Time now) {
  const auto found = functions_.find(function);
  TROUPE_CHECK(found != functions_.end(), "a run left that had not joined");
  if (--found->second.runs > 0) return;
  TROUPE_CHECK(found->second.computing == 0, "a run left while it computed");
  if (!function.empty() && proto::HasQuota(found->second.sharing)) {
    --with_quota_;
    window_.Forget(function, now);
  }
  if (owner_ == function) owner_.clear();
  functions_.erase(found);
}

const std::string& TokenScheduler::AccountOf(const std::string& function) const {
  const auto found = functions_.find(function);
  return found != functions_.end() && proto::HasQuota(found->second.sharing) ? function : kTogether;
}

TokenScheduler::Rank TokenScheduler::RankOf(const std::string& function, Time now) const {
  if (RanksEqual()) return {};
  return {std::min(-window_.Missing(AccountOf(function), now), Duration(0))};
}

std::uint32_t TokenScheduler::MostOf(const Function& function) const {
  if (function.sharing.max_instances() > 0) return function.sharing.max_instances();
  if (policy_.space != SharingPolicy::Space::kShares) return std::numeric_limits<std::uint32_t>::max();
  return proto::InstancesOf(function.sharing, concurrency_);
}

bool TokenScheduler::MayBegin(const std::string& function, Time now) const {
  const auto found = functions_.find(function);
  TROUPE_CHECK(found != functions_.end(), "a run of an unknown function cannot begin");
  if (policy_.one_function && !owner_.empty() && owner_ != function) return false;
  if (!function.empty() && found->second.computing >= MostOf(found->second)) return false;
  return HasTime(function, now);
}

bool TokenScheduler::HasTime(const std::string& function, Time now) const {
  return !policy_.quotas || window_.HasTime(AccountOf(function), now);
}

// Its quota is a part of the whole GPU's time, of which another run beside it would have some.
bool TokenScheduler::IsAlone(const Function& function) const {
  return policy_.quotas && proto::HasQuota(function.sharing) && function.sharing.sm_partition() == 0;
}

std::optional<SmShare> TokenScheduler::Begin(const std::string& function, std::uint32_t sm_partition) {
  Function& entry = functions_.at(function);
  std::optional<SmShare> share = SmShare();
  if (policy_.space != SharingPolicy::Space::kEverywhere)
    share = IsAlone(entry) ? shares_.TakeAlone()
                           : shares_.Take(policy_.space == SharingPolicy::Space::kOne ? 0 : sm_partition);
  if (!share) return std::nullopt;
  ++entry.computing;
  if (policy_.one_function) owner_ = function;
  return share;
}

bool TokenScheduler::Charge(const std::string& function, Duration used, Time now) {
  if (!policy_.quotas) return true;
  const std::string& account = AccountOf(function);
  window_.Charge(account, used, now);
  return window_.HasTime(account, now);
}

void TokenScheduler::Pause(const SmShare& share) {
  if (policy_.space != SharingPolicy::Space::kEverywhere) shares_.Give(share);
}

bool TokenScheduler::Resume(const SmShare& share) {
  return policy_.space == SharingPolicy::Space::kEverywhere || shares_.TakeAgain(share);
}

void TokenScheduler::End(const std::string& function, const std::optional<SmShare>& share) {
  --functions_.at(function).computing;
  if (share) Pause(*share);
}

bool TokenScheduler::Metered(const std::string& function) const {
  return policy_.quotas && with_quota_ > 0 && !AccountOf(function).empty();
}

}  // namespace troupe::gpu

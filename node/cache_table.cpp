#include "node/cache_table.hpp"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::node {

const CacheEntry* CacheTable::Find(const std::string& model) const {
  const auto it = entries_.find(model);
  return it == entries_.end() ? nullptr : &it->second;
}

Bytes CacheTable::WantedBytes() const {
  Bytes sum;
  for (const auto& [model, entry] : entries_) {
    if (entry.wanted) sum += entry.bytes;
  }
  return sum;
}

absl::Status CacheTable::Want(const std::string& model, Bytes bytes) {
  const auto it = entries_.find(model);
  if (it != entries_.end() && it->second.wanted) return absl::OkStatus();
  if (bytes > limits_.region) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a host copy takes ", FormatBytes(bytes), ", and the host region of this node has ",
                     FormatBytes(limits_.region), "; make the region larger"));
  }
  const Bytes wanted = WantedBytes();
  if (wanted + bytes > limits_.region) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a host copy takes ", FormatBytes(bytes), ", and the copies that this node is to hold take ",
        FormatBytes(wanted), " of ", FormatBytes(limits_.region), " already"));
  }
  CacheEntry& entry = entries_[model];
  entry.wanted = true;
  entry.order = next_order_++;
  if (entry.state == CacheState::kAbsent) {
    entry.bytes = bytes;
    entry.failures = 0;
    entry.retry_at = Time();
  }
  return absl::OkStatus();
}

void CacheTable::Unwant(const std::string& model) {
  const auto it = entries_.find(model);
  if (it == entries_.end()) return;
  it->second.wanted = false;
  if (it->second.state == CacheState::kAbsent) entries_.erase(it);
}

void CacheTable::Found(const std::string& model, Bytes bytes, Time now) {
  CacheEntry& entry = entries_[model];
  if (entry.state != CacheState::kAbsent) return;
  TROUPE_CHECK(used_ + bytes <= limits_.region, "more was found in the host region than it can hold");
  entry.bytes = bytes;
  entry.state = CacheState::kHeld;
  entry.last_use = now;
  used_ += bytes;
}

// The copies to drop so that `needed` more bytes fit; empty when they fit, or cannot be made to.
std::vector<std::string> CacheTable::PlanDrops(Bytes needed) const {
  std::vector<std::tuple<Time, std::string, Bytes>> candidates;
  for (const auto& [model, entry] : entries_) {
    if (entry.state == CacheState::kHeld && !entry.wanted && entry.pins == 0) {
      candidates.emplace_back(entry.last_use, model, entry.bytes);
    }
  }
  std::sort(candidates.begin(), candidates.end());
  std::vector<std::string> drops;
  Bytes free = limits_.region - used_;
  for (const auto& [last_use, model, bytes] : candidates) {
    if (free >= needed) break;
    free += bytes;
    drops.push_back(model);
  }
  return free >= needed ? drops : std::vector<std::string>();
}

std::vector<CacheAction> CacheTable::Decide(Time now) {
  std::vector<std::pair<std::uint64_t, std::string>> due;
  Bytes promised;  // room that drops on their way will give
  for (const auto& [model, entry] : entries_) {
    if (entry.state == CacheState::kDropping) promised += entry.bytes;
    if (entry.wanted && entry.state == CacheState::kAbsent && entry.retry_at <= now)
      due.emplace_back(entry.order, model);
  }
  std::sort(due.begin(), due.end());
  std::vector<CacheAction> actions;
  for (const auto& [order, model] : due) {
    if (fetching_ >= limits_.parallel_fetches) break;
    CacheEntry& entry = entries_.at(model);
    if (used_ + entry.bytes <= limits_.region) {
      entry.state = CacheState::kFetching;
      used_ += entry.bytes;
      ++fetching_;
      actions.push_back({CacheActionKind::kFetch, model});
      continue;
    }
    // First come, first served: what comes later waits until the room for this one is there.
    if (used_ + entry.bytes <= limits_.region + promised) break;
    for (const std::string& victim : PlanDrops(entry.bytes)) {
      entries_.at(victim).state = CacheState::kDropping;
      actions.push_back({CacheActionKind::kDrop, victim});
    }
    break;
  }
  return actions;
}

void CacheTable::FetchDone(const std::string& model, const absl::Status& status, Bytes actual, Time now) {
  const auto it = entries_.find(model);
  TROUPE_CHECK(it != entries_.end() && it->second.state == CacheState::kFetching,
               "a fetch ended that did not begin");
  CacheEntry& entry = it->second;
  --fetching_;
  if (status.ok()) {
    if (actual != Bytes()) {
      used_ -= entry.bytes;
      used_ += actual;
      entry.bytes = actual;
      TROUPE_CHECK(used_ <= limits_.region, "a fetched copy is larger than its place in the host region");
    }
    entry.state = CacheState::kHeld;
    entry.last_use = now;
    entry.failures = 0;
    entry.last_error = absl::OkStatus();
    return;
  }
  used_ -= entry.bytes;
  entry.state = CacheState::kAbsent;
  entry.last_error = status;
  const std::uint32_t doublings = std::min<std::uint32_t>(entry.failures++, 16);
  entry.retry_at =
      now + std::min(limits_.first_retry * (std::int64_t{1} << doublings), limits_.longest_retry);
  if (!entry.wanted) entries_.erase(it);
}

void CacheTable::DropDone(const std::string& model) {
  const auto it = entries_.find(model);
  TROUPE_CHECK(it != entries_.end() && it->second.state == CacheState::kDropping,
               "a drop ended that did not begin");
  used_ -= it->second.bytes;
  it->second.state = CacheState::kAbsent;
  if (!it->second.wanted) entries_.erase(it);
}

void CacheTable::Pin(const std::string& model) {
  const auto it = entries_.find(model);
  TROUPE_CHECK(it != entries_.end() && it->second.state == CacheState::kHeld, "only a held copy can be read");
  ++it->second.pins;
}

void CacheTable::Unpin(const std::string& model) {
  const auto it = entries_.find(model);
  TROUPE_CHECK(it != entries_.end() && it->second.pins > 0, "a copy was let go that nobody read");
  --it->second.pins;
}

void CacheTable::Touch(const std::string& model, Time now) {
  const auto it = entries_.find(model);
  if (it != entries_.end()) it->second.last_use = now;
}

Time CacheTable::NextDue() const {
  Time due = Time::max();
  for (const auto& [model, entry] : entries_) {
    if (entry.wanted && entry.state == CacheState::kAbsent && entry.failures > 0)
      due = std::min(due, entry.retry_at);
  }
  return due;
}

std::vector<std::string> CacheTable::Held() const {
  std::vector<std::string> models;
  for (const auto& [model, entry] : entries_) {
    if (entry.state == CacheState::kHeld) models.push_back(model);
  }
  return models;
}

void CacheTable::Check() const {
  Bytes used;
  std::uint32_t fetching = 0;
  for (const auto& [model, entry] : entries_) {
    if (entry.state != CacheState::kAbsent) used += entry.bytes;
    if (entry.state == CacheState::kFetching) ++fetching;
    TROUPE_CHECK(entry.pins == 0 || entry.state == CacheState::kHeld, "a copy is read that is not held");
  }
  TROUPE_CHECK(used == used_ && used_ <= limits_.region, "the host region is booked twice");
  TROUPE_CHECK(fetching == fetching_ && fetching_ <= limits_.parallel_fetches, "too many fetches at once");
}

}  // namespace troupe::node

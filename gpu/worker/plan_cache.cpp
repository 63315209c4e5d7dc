#include "gpu/worker/plan_cache.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.hpp"

namespace troupe::gpu {

std::string PlanKeyOf(const std::string& digest, std::vector<proto::TensorSpec> inputs,
                      proto::Precision precision) {
  std::sort(inputs.begin(), inputs.end(), [](const auto& a, const auto& b) { return a.name() < b.name(); });
  std::string key = absl::StrCat(digest, "|", static_cast<int>(precision));
  // Lengths stand before names, so that no name can pretend to be something else.
  for (const proto::TensorSpec& input : inputs) {
    absl::StrAppend(&key, "|", input.name().size(), ":", input.name(), "=", static_cast<int>(input.type()),
                    "[", absl::StrJoin(input.shape(), ","), "]", input.text_bytes());
  }
  return key;
}

PlanCache::PlanCache(std::size_t capacity) : capacity_(capacity) {
  TROUPE_CHECK(capacity > 0, "a plan cache needs room for a plan");
}

std::shared_ptr<DevicePlan> PlanCache::Find(const std::string& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->plan;
}

void PlanCache::Put(const std::string& key, const std::string& digest, proto::Precision precision,
                    std::shared_ptr<DevicePlan> plan) {
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    entries_.erase(found->second);
    by_key_.erase(found);
  }
  entries_.push_front({key, digest, precision, std::move(plan)});
  by_key_[key] = entries_.begin();
  if (entries_.size() > capacity_) {
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

std::vector<proto::PlanKey> PlanCache::Keys() const {
  std::vector<proto::PlanKey> keys;
  for (const Entry& entry : entries_) {
    proto::PlanKey& key = keys.emplace_back();
    key.set_digest(entry.digest);
    key.set_precision(entry.precision);
    for (const proto::TensorSpec& input : entry.plan->inputs()) *key.add_inputs() = input;
  }
  return keys;
}

}  // namespace troupe::gpu

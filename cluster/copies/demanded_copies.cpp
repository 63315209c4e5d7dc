#include "cluster/copies/demanded_copies.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace troupe::cluster {

void DemandedCopies::Ran(const std::string& digest, Duration gpu_time, Time now) {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(gpu_time).count();
  if (policy_ == ReplicaPolicy::kFixed || micros <= 0) return;
  busy_.Add(digest, static_cast<std::uint64_t>(micros), now);
  ran_.insert(digest);
}

void DemandedCopies::Foreseen(const std::string& digest, std::uint32_t nodes) {
  if (policy_ == ReplicaPolicy::kFixed) return;
  foreseen_[digest] = std::max(foreseen_[digest], nodes);
  ran_.insert(digest);
}

double DemandedCopies::LoadOf(const std::string& digest, Time now) const {
  // What fades by half in each half-life adds up to this many times what comes in a second.
  const double seconds = ToSeconds(kHalfLife) / std::numbers::ln2;
  return busy_.Of(digest, now) / 1e6 / seconds;
}

double DemandedCopies::Expected(const std::string& digest, double load, double of_a_node, Time now) {
  if (policy_ != ReplicaPolicy::kForecast) return load;
  if (load < kWatched * of_a_node) {
    watched_.erase(digest);
    return load;
  }
  Watch& watch = watched_[digest];
  if (now - watch.observed >= kLook) {
    watch.forecast.Observe(load, now);
    watch.observed = now;
  }
  return std::max(load, watch.forecast.Expected(kAhead));
}

bool DemandedCopies::Follow(Copies& copies, std::uint32_t needed, Time now) {
  if (needed >= copies.now) {
    copies.below = Time();
    const bool grows = needed > copies.now;
    copies.now = needed;
    return grows;
  }
  if (copies.below == Time()) {
    copies.below = now;
    copies.since_below = needed;
  }
  copies.since_below = std::max(copies.since_below, needed);
  if (now - copies.below < kHold) return false;
  copies.now = copies.since_below;
  copies.below = Time();
  return true;
}

const std::vector<std::string>& DemandedCopies::Update(double gpus, Time now) {
  std::set<std::string> look = std::exchange(ran_, {});
  if (now - looked_ >= kLook) {
    looked_ = now;
    for (const auto& [digest, copies] : more_) look.insert(digest);
    for (const auto& [digest, watch] : watched_) look.insert(digest);
  }
  changed_.clear();
  const auto foreseen = std::exchange(foreseen_, {});
  const double of_a_node = kUse * std::max(gpus, 1.0);
  for (const auto& digest : look) {
    const auto ahead = foreseen.find(digest);
    const double nodes = std::ceil(Expected(digest, LoadOf(digest, now), of_a_node, now) / of_a_node);
    const std::uint32_t needed = std::max(static_cast<std::uint32_t>(std::clamp(nodes, 1.0, 1e6)),
                                          ahead == foreseen.end() ? 1 : ahead->second);
    const auto known = more_.find(digest);
    if (known == more_.end() && needed == 1) continue;
    Copies& copies = known == more_.end() ? more_[digest] : known->second;
    if (Follow(copies, needed, now)) changed_.push_back(digest);
    if (copies.now == 1) more_.erase(digest);
  }
  return changed_;
}

std::uint32_t DemandedCopies::Of(const std::string& digest) const {
  const auto found = more_.find(digest);
  return found == more_.end() ? 1 : found->second.now;
}

}  // namespace troupe::cluster

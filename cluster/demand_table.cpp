#include "cluster/demand_table.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::cluster {

namespace {

constexpr double kNothing = 0.01;  // of a request

}  // namespace

double DemandTable::Faded(const Entry& entry, Time now) const {
  const Duration age = std::max(now - entry.at, Duration::zero());
  return entry.requests *
         std::exp2(-static_cast<double>(age.count()) / static_cast<double>(half_life_.count()));
}

void DemandTable::Add(const std::string& digest, std::uint64_t requests, Time now) {
  if (now - forgotten_ >= half_life_) Forget(now);
  Entry& entry = models_[digest];
  entry = {Faded(entry, now) + static_cast<double>(requests), now};
}

double DemandTable::Of(const std::string& digest, Time now) const {
  const auto it = models_.find(digest);
  return it == models_.end() ? 0 : Faded(it->second, now);
}

void DemandTable::Forget(Time now) {
  forgotten_ = now;
  std::erase_if(models_, [&](const auto& entry) { return Faded(entry.second, now) < kNothing; });
}

}  // namespace troupe::cluster

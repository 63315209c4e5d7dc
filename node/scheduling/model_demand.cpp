#include "node/scheduling/model_demand.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::node {

void RecentRate::Add(double amount, Time now) {
  if (first_ == Time::max()) first_ = last_ = now;
  sum_ = sum_ * std::exp(-ToSeconds(now - last_) / ToSeconds(kMemory)) + amount;
  last_ = now;
}

double RecentRate::At(Time now) const {
  if (first_ == Time::max()) return 0;
  const double memory = ToSeconds(kMemory);
  const double seen = ToSeconds(std::max<Duration>(now - first_, kShortest));
  const double remembered = memory * -std::expm1(-seen / memory);
  return sum_ * std::exp(-ToSeconds(now - last_) / memory) / remembered;
}

double WaitingWith(const ModelDemand& demand, std::uint32_t copies, double busy) {
  constexpr double kMostBusy = 0.95;
  const double bring = ToSeconds(demand.bring);
  if (copies == 0) return demand.rate * bring;
  const double run = ToSeconds(demand.run);
  const double share = std::clamp(demand.rate * run / copies, busy, std::max(busy, kMostBusy));
  const double until_one_is_free = share >= 1 ? bring : std::min(run / (copies * (1 - share)), bring);
  return demand.rate * std::pow(share, copies) * until_one_is_free;
}

}  // namespace troupe::node

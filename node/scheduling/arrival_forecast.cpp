#include "node/scheduling/arrival_forecast.hpp"

#include <utility>

namespace troupe::node {

namespace {
constexpr double kWeight = 0.25;       // of one arrival
constexpr double kTrustworthy = 0.55;  // three in a row from none; by chance one in hundreds
}  // namespace

void ArrivalForecast::Arrived(Time now) {
  const Time before = std::exchange(last_, now);
  if (before == Time::min()) return;
  const Duration interval = now - before;
  const Duration expected = std::exchange(interval_, interval);
  if (expected == Duration()) return;
  const bool on_time = std::chrono::abs(interval - expected) <= expected / kTolerance;
  trust_ += kWeight * ((on_time ? 1 : 0) - trust_);
}

Time ArrivalForecast::Due() const {
  return trust_ < kTrustworthy ? Time::max() : last_ + interval_;
}

}  // namespace troupe::node

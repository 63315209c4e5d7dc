#include "base/cost_model.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr double kWeight = 0.2;
// Shorter copies measure the start of a copy rather than the link.
constexpr Bytes kSmallestMeasuredLoad = KiB(256);

}  // namespace

void RunningEstimate::Observe(Duration value) {
  const Duration::rep sample = std::max<Duration::rep>(value.count(), 0);
  mean_ = known_ ? mean_ + static_cast<Duration::rep>(kWeight * static_cast<double>(sample - mean_)) : sample;
  known_ = true;
}

void CostModel::ObserveLoad(Bytes bytes, Duration took) {
  if (bytes < kSmallestMeasuredLoad || took <= Duration::zero()) return;
  const double sample = static_cast<double>(took.count()) / static_cast<double>(bytes.count());
  nanos_per_byte_ = nanos_per_byte_ == 0 ? sample : nanos_per_byte_ + kWeight * (sample - nanos_per_byte_);
}

void CostModel::ObserveRun(const std::string& model, Duration took) {
  runs_[model].Observe(took);
}

Duration CostModel::LoadTime(Bytes bytes) const {
  if (nanos_per_byte_ == 0) return TransferTime(bytes, defaults_.link);
  return FromSeconds(static_cast<double>(bytes.count()) * nanos_per_byte_ * 1e-9);
}

Duration CostModel::RunTime(const std::string& model) const {
  const auto it = runs_.find(model);
  return it == runs_.end() ? defaults_.run : it->second.Or(defaults_.run);
}

}  // namespace troupe

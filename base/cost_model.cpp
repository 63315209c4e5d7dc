#include "base/cost_model.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

constexpr double kWeight = 0.2;
constexpr double kMemorySeconds = 5;
// Shorter copies measure the start of a copy rather than the link.
constexpr Bytes kSmallestMeasuredLoad = KiB(256);

}  // namespace

void RunningEstimate::Observe(Duration value) {
  const Duration::rep sample = std::max<Duration::rep>(value.count(), 0);
  mean_ = known_ ? mean_ + static_cast<Duration::rep>(kWeight * static_cast<double>(sample - mean_)) : sample;
  known_ = true;
}

void BusyShare::Add(Duration work, Time now, std::uint32_t among) {
  share_ = At(now) + ToSeconds(work) / kMemorySeconds / among;
  last_ = now;
}

double BusyShare::At(Time now) const {
  return share_ * std::exp(-std::max(0.0, ToSeconds(now - last_)) / kMemorySeconds);
}

void CostModel::ObserveLoad(Bytes bytes, Duration took) {
  if (bytes < kSmallestMeasuredLoad || took <= Duration::zero()) return;
  const double sample = static_cast<double>(took.count()) / static_cast<double>(bytes.count());
  ++revision_;
  nanos_per_byte_ = nanos_per_byte_ == 0 ? sample : nanos_per_byte_ + kWeight * (sample - nanos_per_byte_);
}

CostModel::Entry& CostModel::Touch(const std::string& model) {
  if (models_.size() >= defaults_.max_models && !models_.contains(model)) {
    models_.erase(std::min_element(models_.begin(), models_.end(), [](const auto& a, const auto& b) {
      return a.second.last < b.second.last;
    }));
  }
  Entry& entry = models_[model];
  entry.last = ++revision_;
  return entry;
}

void CostModel::ObserveRun(const std::string& model, Duration took) {
  Touch(model).run.Observe(took);
}

void CostModel::ObserveSwapped(const std::string& model, Duration took) {
  Touch(model).swapped.Observe(took);
}

Duration CostModel::LoadTime(Bytes bytes) const {
  if (nanos_per_byte_ == 0) return TransferTime(bytes, defaults_.link);
  return FromSeconds(static_cast<double>(bytes.count()) * nanos_per_byte_ * 1e-9);
}

Duration CostModel::RunTime(const std::string& model) const {
  const auto it = models_.find(model);
  if (it == models_.end()) return defaults_.run;
  return it->second.run.Or(it->second.swapped.Or(defaults_.run));
}

bool CostModel::Heavy(const std::string& model, Bytes weights) const {
  const double load = ToSeconds(LoadTime(weights));
  const auto it = models_.find(model);
  if (it == models_.end()) return load > defaults_.heavy_slowdown * ToSeconds(defaults_.run);
  const Entry& entry = it->second;
  const double swapped = ToSeconds(entry.swapped.Or(Duration::zero()));
  // Nobody has seen it run with its weights there: it is heavy when the load makes up what it took.
  if (!entry.run.known()) return swapped < defaults_.heavy_slowdown * load;
  const double run = ToSeconds(entry.run.Or(Duration::zero()));
  return (entry.swapped.known() ? swapped : std::max(load, run)) > defaults_.heavy_slowdown * run;
}

Duration CostModel::SwapDelay(const std::string& model, Bytes weights) const {
  const auto it = models_.find(model);
  const Duration run = RunTime(model);
  if (it != models_.end() && it->second.swapped.known() && it->second.run.known())
    return std::max(Duration(), it->second.swapped.Or(run) - run);
  return std::max(Duration(), LoadTime(weights) - run);
}

bool CostModel::Measured(const std::string& model) const {
  const auto it = models_.find(model);
  return it != models_.end() && it->second.run.known() && it->second.swapped.known();
}

std::vector<ModelCost> CostModel::Known() const {
  std::vector<ModelCost> known;
  known.reserve(models_.size());
  for (const auto& [model, entry] : models_) {
    known.push_back({model, entry.run.Or(Duration::zero()), entry.swapped.Or(Duration::zero())});
  }
  std::ranges::sort(known, {}, &ModelCost::model);
  return known;
}

void CostModel::Restore(const std::vector<ModelCost>& known, double nanos_per_byte) {
  if (std::isfinite(nanos_per_byte) && nanos_per_byte > 0) nanos_per_byte_ = nanos_per_byte;
  for (const ModelCost& cost : known) {
    if (cost.model.empty()) continue;
    if (cost.run > Duration::zero()) Touch(cost.model).run.Observe(cost.run);
    if (cost.swapped > Duration::zero()) Touch(cost.model).swapped.Observe(cost.swapped);
  }
}

}  // namespace troupe

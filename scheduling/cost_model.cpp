#include "scheduling/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.hpp"

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
  at_ = share_ = At(now) + ToSeconds(work) / kMemorySeconds / among;
  asked_ = last_ = now;
}

double BusyShare::At(Time now) const {
  if (now != std::exchange(asked_, now))
    at_ = share_ * std::exp(-std::max(0.0, ToSeconds(now - last_)) / kMemorySeconds);
  return at_;
}

void CostModel::ObserveLoad(Bytes bytes, Duration took) {
  if (bytes < kSmallestMeasuredLoad || took <= Duration::zero()) return;
  const double sample = static_cast<double>(took.count()) / static_cast<double>(bytes.count());
  ++revision_;
  nanos_per_byte_ = nanos_per_byte_ == 0 ? sample : nanos_per_byte_ + kWeight * (sample - nanos_per_byte_);
}

CostModel::Id CostModel::IdOf(const std::string& model) {
  const auto [it, is_new] = ids_.try_emplace(model, kNone);
  if (!is_new) return it->second;
  if (free_.empty()) {
    free_.push_back(static_cast<Id>(entries_.size()));
    entries_.emplace_back();
  }
  it->second = free_.back();
  free_.pop_back();
  entries_[it->second].name = &it->first;
  if (const auto profiled = profiled_.find(model); profiled != profiled_.end())
    entries_[it->second].profiled = profiled->second;
  return it->second;
}

CostModel::Id CostModel::Hold(const std::string& model) {
  const Id id = IdOf(model);
  ++entries_[id].holders;
  return id;
}

void CostModel::Release(Id id) {
  TROUPE_CHECK(entries_.at(id).holders > 0, "a model's costs were released without a holder");
  --entries_[id].holders;
  FreeUnused(id);
}

void CostModel::FreeUnused(Id id) {
  if (entries_[id].holders > 0 || entries_[id].seen) return;
  ids_.erase(ids_.find(*entries_[id].name));
  entries_[id] = {};
  free_.push_back(id);
}

void CostModel::Unlink(Id id) {
  const Entry& entry = entries_[id];
  (entry.newer == kNone ? newest_ : entries_[entry.newer].older) = entry.older;
  (entry.older == kNone ? oldest_ : entries_[entry.older].newer) = entry.newer;
}

void CostModel::Forget(Id id) {
  Unlink(id);
  Entry& entry = entries_[id];
  entry.run = entry.swapped = {};
  entry.times = {};
  entry.cuts = 0;
  entry.seen = false;
  entry.newer = entry.older = kNone;
  --seen_;
  FreeUnused(id);
}

CostModel::Entry& CostModel::Touch(Id id) {
  if (entries_[id].seen) {
    Unlink(id);
  } else {
    if (seen_ >= defaults_.max_models && seen_ > 0) Forget(oldest_);
    entries_[id].seen = true;
    ++seen_;
  }
  Entry& entry = entries_[id];
  entry.newer = kNone;
  entry.older = newest_;
  (newest_ == kNone ? oldest_ : entries_[newest_].newer) = id;
  newest_ = id;
  ++revision_;
  return entry;
}

void CostModel::ObserveRun(Id model, Duration took) {
  Touch(model).run.Observe(took);
}

void CostModel::ObserveSwapped(Id model, Duration took) {
  Touch(model).swapped.Observe(took);
}

void CostModel::ObserveCompute(Id model, Duration took) {
  Entry& entry = Touch(model);
  entry.times.Observe(took);
  entry.cuts = 0;
}

void CostModel::NoteCut(Id model) {
  ++Touch(model).cuts;
}

void CostModel::SetProfiled(const std::string& model, Duration run) {
  if (run > Duration::zero())
    profiled_[model] = run;
  else
    profiled_.erase(model);
  if (const auto it = ids_.find(model); it != ids_.end()) entries_[it->second].profiled = run;
}

Duration CostModel::RunTime(const std::string& model) const {
  if (const auto* entry = Find(model); entry != nullptr) return RunTimeOf(entry);
  const auto profiled = profiled_.find(model);
  return profiled == profiled_.end() ? defaults_.run : profiled->second;
}

void CostModel::ObserveRun(const std::string& model, Duration took) {
  ObserveRun(IdOf(model), took);
}

void CostModel::ObserveSwapped(const std::string& model, Duration took) {
  ObserveSwapped(IdOf(model), took);
}

const CostModel::Entry* CostModel::Find(const std::string& model) const {
  const auto it = ids_.find(model);
  return it == ids_.end() ? nullptr : &entries_[it->second];
}

Duration CostModel::LoadTime(Bytes bytes) const {
  if (nanos_per_byte_ == 0) return TransferTime(bytes, defaults_.link);
  return FromSeconds(static_cast<double>(bytes.count()) * nanos_per_byte_ * 1e-9);
}

bool CostModel::HeavyOf(const Entry* entry, Duration load_time) const {
  const double load = ToSeconds(load_time);
  const bool profiled = entry != nullptr && entry->profiled > Duration::zero();
  if (!profiled && (entry == nullptr || !entry->seen))
    return load > defaults_.heavy_slowdown * ToSeconds(defaults_.run);
  const double swapped = ToSeconds(entry->swapped.Or(Duration::zero()));
  // No run with its weights resident was seen: the model counts as heavy when the load made up most of the
  // run.
  if (!profiled && !entry->run.known()) return swapped < defaults_.heavy_slowdown * load;
  const double run = ToSeconds(RunTimeOf(entry));
  return (entry->swapped.known() ? swapped : std::max(load, run)) > defaults_.heavy_slowdown * run;
}

Duration CostModel::DelayOf(const Entry& entry, Duration load) const {
  const Duration run = RunTimeOf(&entry);
  const bool measured = entry.swapped.known() && (entry.run.known() || entry.profiled > Duration::zero());
  return std::max(Duration(), (measured ? entry.swapped.Or(run) : load) - run);
}

SwapCosts CostModel::CostsOf(Id model, Bytes weights) const {
  const Entry& entry = entries_[model];
  const Duration load = LoadTime(weights);
  return {
      .load = load, .run = RunTimeOf(&entry), .delay = DelayOf(entry, load), .heavy = HeavyOf(&entry, load)};
}

bool CostModel::Measured(const std::string& model) const {
  const Entry* entry = Find(model);
  return entry != nullptr && entry->run.known() && entry->swapped.known();
}

std::vector<ModelCost> CostModel::Known() const {
  std::vector<ModelCost> known;
  known.reserve(seen_);
  for (Id id = newest_; id != kNone; id = entries_[id].older) {
    const Entry& entry = entries_[id];
    known.push_back({*entry.name, entry.run.Or(Duration::zero()), entry.swapped.Or(Duration::zero()),
                     entry.times.Counts()});
  }
  std::ranges::sort(known, {}, &ModelCost::model);
  return known;
}

void CostModel::Restore(const std::vector<ModelCost>& known, double nanos_per_byte) {
  if (std::isfinite(nanos_per_byte) && nanos_per_byte > 0) nanos_per_byte_ = nanos_per_byte;
  for (const ModelCost& cost : known) {
    if (cost.model.empty()) continue;
    if (cost.run > Duration::zero()) ObserveRun(cost.model, cost.run);
    if (cost.swapped > Duration::zero()) ObserveSwapped(cost.model, cost.swapped);
    if (!cost.run_times.empty()) Touch(IdOf(cost.model)).times = RunTimeSketch::Of(cost.run_times);
  }
}

}  // namespace troupe

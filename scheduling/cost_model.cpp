#include "scheduling/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/check.hpp"

namespace troupe {

namespace {

constexpr double kMemorySeconds = 5;
// Shorter copies measure the start of a copy rather than the link.
constexpr Bytes kSmallestMeasuredLoad = KiB(256);

}  // namespace

void BusyShare::Add(Duration work, Time now, std::uint32_t among) {
  at_ = share_ = At(now) + ToSeconds(work) / kMemorySeconds / among;
  asked_ = last_ = now;
}

double BusyShare::At(Time now) const {
  if (now != std::exchange(asked_, now))
    at_ = share_ * std::exp(-std::max(0.0, ToSeconds(now - last_)) / kMemorySeconds);
  return at_;
}

void CostModel::ObserveLoad(Bytes bytes, Duration took, KindId kind) {
  if (bytes < kSmallestMeasuredLoad || took <= Duration::zero()) return;
  const double sample = static_cast<double>(took.count()) / static_cast<double>(bytes.count());
  ++revision_;
  double& nanos = nanos_per_byte_.At(kind);
  nanos = nanos == 0 ? sample : nanos + RunningEstimate::kWeight * (sample - nanos);
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
    SetProfiled(entries_[it->second], profiled->second);
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
  entry.costs.Forget();
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

void CostModel::ObserveRun(Id model, Duration took, KindId kind) {
  KindCosts& costs = Touch(model).costs;
  costs.At(kind).run.Observe(took);
  if (costs.size() > 1) costs.Compare(kind, ratios_);
}

void CostModel::ObserveSwapped(Id model, Duration took, KindId kind) {
  Touch(model).costs.At(kind).swapped.Observe(took);
}

void CostModel::ObserveCompute(Id model, Duration took, KindId kind) {
  KindCosts::Learned& learned = Touch(model).costs.At(kind);
  learned.times.Observe(took);
  learned.cuts = 0;
}

void CostModel::NoteCut(Id model, KindId kind) {
  ++Touch(model).costs.At(kind).cuts;
}

void CostModel::SetProfiled(Entry& entry, const ByKind<Duration>& runs) {
  for (KindId kind = 0; kind < runs.size(); ++kind) entry.costs.At(kind).profiled = *runs.Find(kind);
}

void CostModel::SetProfiled(const std::string& model, Duration run, KindId kind) {
  if (run <= Duration::zero() && !profiled_.contains(model)) return;
  ByKind<Duration>& runs = profiled_[model];
  runs.At(kind) = std::max(run, Duration::zero());
  if (const auto it = ids_.find(model); it != ids_.end()) SetProfiled(entries_[it->second], runs);
  bool any = false;
  for (KindId one = 0; one < runs.size(); ++one) any = any || *runs.Find(one) > Duration::zero();
  if (!any) profiled_.erase(model);
}

Duration CostModel::RunTime(const std::string& model, KindId kind) const {
  if (const auto* entry = Find(model); entry != nullptr)
    return entry->costs.RunTime(kind, ratios_, defaults_.run);
  const auto profiled = profiled_.find(model);
  if (profiled == profiled_.end()) return defaults_.run;
  Entry unseen;
  SetProfiled(unseen, profiled->second);
  return unseen.costs.RunTime(kind, ratios_, defaults_.run);
}

void CostModel::ObserveRun(const std::string& model, Duration took, KindId kind) {
  ObserveRun(IdOf(model), took, kind);
}

void CostModel::ObserveSwapped(const std::string& model, Duration took, KindId kind) {
  ObserveSwapped(IdOf(model), took, kind);
}

const CostModel::Entry* CostModel::Find(const std::string& model) const {
  const auto it = ids_.find(model);
  return it == ids_.end() ? nullptr : &entries_[it->second];
}

double CostModel::FewestNanosPerByte() const {
  double fewest = 0;
  for (KindId kind = 0; kind < nanos_per_byte_.size(); ++kind) {
    const double nanos = *nanos_per_byte_.Find(kind);
    if (nanos > 0 && (fewest == 0 || nanos < fewest)) fewest = nanos;
  }
  return fewest;
}

Duration CostModel::LoadTime(Bytes bytes, KindId kind) const {
  const double* const own = nanos_per_byte_.Find(kind);
  const double nanos = own != nullptr && *own > 0 ? *own : FewestNanosPerByte();
  if (nanos == 0) return TransferTime(bytes, defaults_.link);
  return FromSeconds(static_cast<double>(bytes.count()) * nanos * 1e-9);
}

bool CostModel::HeavyOf(const Entry* entry, Duration load_time, KindId kind) const {
  const double load = ToSeconds(load_time);
  const KindCosts::Learned* const known = entry == nullptr ? nullptr : &entry->costs.Standing(kind);
  const bool profiled = known != nullptr && known->profiled > Duration::zero();
  if (!profiled && (entry == nullptr || !entry->seen))
    return load > defaults_.heavy_slowdown * ToSeconds(defaults_.run);
  const double swapped = ToSeconds(known->swapped.Or(Duration::zero()));
  // No run with its weights resident was seen: the model counts as heavy when the load made up most of the
  // run.
  if (!known->HasRun()) return swapped < defaults_.heavy_slowdown * load;
  const double run = ToSeconds(known->Run());
  return (known->swapped.known() ? swapped : std::max(load, run)) > defaults_.heavy_slowdown * run;
}

Duration CostModel::DelayOf(const Entry& entry, Duration load, KindId kind) const {
  const KindCosts::Learned& known = entry.costs.Standing(kind);
  const bool measured = known.swapped.known() && known.HasRun();
  return std::max(Duration(), measured ? known.swapped.Or({}) - known.Run()
                                       : load - entry.costs.RunTime(kind, ratios_, defaults_.run));
}

SwapCosts CostModel::CostsOf(Id model, Bytes weights, KindId kind) const {
  const Entry& entry = entries_[model];
  const Duration load = LoadTime(weights, kind);
  return {.load = load,
          .run = entry.costs.RunTime(kind, ratios_, defaults_.run),
          .delay = DelayOf(entry, load, kind),
          .heavy = HeavyOf(&entry, load, kind)};
}

bool CostModel::Measured(const std::string& model) const {
  const Entry* entry = Find(model);
  return entry != nullptr && entry->costs.Measured();
}

bool CostModel::MeasuredOn(const std::string& model, KindId kind) const {
  const Entry* entry = Find(model);
  return entry != nullptr && entry->costs.MeasuredOn(kind);
}

std::vector<ModelCost> CostModel::Known() const {
  std::vector<ModelCost> known;
  known.reserve(seen_);
  for (Id id = newest_; id != kNone; id = entries_[id].older) {
    const Entry& entry = entries_[id];
    for (KindId kind = 0; kind < entry.costs.size(); ++kind) {
      const KindCosts::Learned& learned = *entry.costs.Find(kind);
      if (entry.costs.size() > 1 && learned.IsEmpty()) continue;
      known.push_back({*entry.name, learned.run.Or(Duration::zero()), learned.swapped.Or(Duration::zero()),
                       learned.times.Counts(), kind});
    }
  }
  std::ranges::sort(known, {}, [](const ModelCost& cost) {
    return std::pair<std::string_view, KindId>(cost.model, cost.kind);
  });
  return known;
}

void CostModel::Restore(const std::vector<ModelCost>& known, const ByKind<double>& nanos_per_byte) {
  for (KindId kind = 0; kind < nanos_per_byte.size(); ++kind) {
    const double nanos = *nanos_per_byte.Find(kind);
    if (std::isfinite(nanos) && nanos > 0) nanos_per_byte_.At(kind) = nanos;
  }
  for (const ModelCost& cost : known) {
    if (cost.model.empty()) continue;
    if (cost.run > Duration::zero()) ObserveRun(cost.model, cost.run, cost.kind);
    if (cost.swapped > Duration::zero()) ObserveSwapped(cost.model, cost.swapped, cost.kind);
    if (!cost.run_times.empty())
      Touch(IdOf(cost.model)).costs.At(cost.kind).times = RunTimeSketch::Of(cost.run_times);
  }
}

}  // namespace troupe

// What makes room for a request: who goes, in the eviction policy's order; and what passes through without
// anybody going.
#include <algorithm>

#include "base/check.hpp"
#include "node/swap_scheduler.hpp"

namespace troupe::node {

namespace {
constexpr std::int32_t kBoundTier = 1000;  // behind every tier of an eviction policy
}  // namespace

double SwapScheduler::RateOf(const Model& model, Time now) const {
  if (!model.adopted || model.asked == Time::min()) return 0;
  // It was not asked for since then: its rate is no higher.
  const Duration silent = now - model.asked;
  return 1 / std::max(ToSeconds(std::max(model.gap.Or(silent), silent)), 1e-6);
}

// Those that may go, in no order; of one rank the first by name goes first.
std::vector<Victim> SwapScheduler::MayGo(ModelId coming, const Gpu& gpu, Time now) const {
  const double busy = std::min(1.0, link_pressure_.At(now));  // nobody waits for a link that is idle
  std::vector<Victim> victims;
  victims.reserve(gpu.residents.size());
  for (const auto& [id, resident] : gpu.residents) {
    if (!resident.Idle() || id == coming) continue;
    const Model& model = models_[id];
    const SwapCosts costs = costs_.CostsOf(model.cost, resident.bytes);
    const EvictionCandidate candidate{
        .bytes = resident.WithStates(),
        .last_use = resident.last_use,
        .replicas = gpus_.HolderCount(id),
        .wanted = queue_.Find(id) != nullptr || model.kept_until > now,
        .heavy = costs.heavy,
        .rate = RateOf(model, now),
        .load = FromSeconds(ToSeconds(costs.load) * busy),
        .slack = model.patience.known() ? model.patience.Or({}) - costs.run : Duration::max(),
        .delay = costs.delay};
    victims.push_back({policies_.eviction(candidate), id, candidate.bytes});
    // Nothing bound goes, unless a model outgrew what was kept for it.
    if (!binding_.late() && binding_.Bound(id)) victims.back().rank.tier += kBoundTier;
  }
  return victims;
}

// The room that a run is given: more than it needs by the estimates, where they were wrong before.
Bytes SwapScheduler::Target(ModelId model, const Gpu& gpu, Bytes need) const {
  if (hints_.empty()) return need;
  const auto hint = hints_.find({gpu.index, model});
  return hint == hints_.end() ? need : need + hint->second.extra;
}

// With nothing else on the GPU neither fragments nor an earlier NoFit count: the worker will tell. `room`:
// with all gone that may go.
bool SwapScheduler::FitsAlone(const Gpu& gpu, const Resident* own, Bytes need, Bytes room) const {
  if (gpu.in_flight > 0 || gpu.strange > Bytes() || room + gpu.overhead < need) return false;
  return std::ranges::all_of(gpu.residents,
                             [&](const auto& there) { return &there.second == own || there.second.Idle(); });
}

// The request fits, now or after evicting all that may go.
bool SwapScheduler::CanMakeRoom(const Look& look, const Gpu& gpu, const Resident* own, Bytes need) const {
  const Bytes target = Target(look.entry.model, gpu, need);
  const Bytes free = gpu.Free();
  if (free >= target) return true;
  const Bytes others = own != nullptr && own->Idle() ? gpu.idle - own->WithStates() : gpu.idle;
  return free + others >= target || FitsAlone(gpu, own, need, free + others);
}

// Whom to evict for a model, or its run, that fits: in the policy's order, without those that turned out to
// be needless.
std::vector<ModelId> SwapScheduler::PlanVictims(ModelId model, Bytes need, const Gpu& gpu, Time now) const {
  const Bytes target = Target(model, gpu, need);
  Bytes room = gpu.Free();
  if (room >= target) return {};
  std::vector<Victim> candidates = MayGo(model, gpu, now);
  const auto later = [&](const Victim& a, const Victim& b) {
    return a.rank != b.rank ? a.rank > b.rank : NameOf(a.model) > NameOf(b.model);
  };
  absl::InlinedVector<Victim, 8> chosen;
  while (room < target && !candidates.empty()) {
    // Mostly one is enough: all are put in order only for more.
    if (chosen.empty()) {
      std::iter_swap(std::ranges::max_element(candidates, later), candidates.end() - 1);
    } else {
      if (chosen.size() == 1) std::ranges::make_heap(candidates, later);
      std::ranges::pop_heap(candidates, later);
    }
    chosen.push_back(candidates.back());
    candidates.pop_back();
    room += chosen.back().bytes;
  }
  if (room < target) {
    TROUPE_CHECK(FitsAlone(gpu, gpu.Find(model), need, room), "a chosen GPU has no room");
  } else {
    const auto needless = [&](const Victim& candidate) {
      if (room < target + candidate.bytes) return false;
      room -= candidate.bytes;
      return true;
    };
    chosen.erase(std::remove_if(chosen.begin(), chosen.end(), needless), chosen.end());
  }
  std::vector<ModelId> victims;
  for (const Victim& victim : chosen) victims.push_back(victim.model);
  return victims;
}

void SwapScheduler::Evict(GpuIndex gpu, ModelId model) {
  ++counts_.evictions;
  const Bytes bytes = gpus_.at(gpu).Find(model)->bytes;
  if (gpus_.HolderCount(model) > 1) {
    ++counts_.evicted_replicas;
  } else {
    ++(costs_.Heavy(models_[model].cost, bytes) ? counts_.evicted_heavy : counts_.evicted_light);
  }
  gpus_.BeginEvict(gpu, model);
  states_.BeginEvict(gpu, model);
  if (models_[model].parked == gpu) Activate(model);
  MayWantCopy(model);
}

namespace {

// What a model takes of a GPU that it passes through: the worker plans it by what the steps read, and answers
// NoFit when this is too little.
Bytes WindowOf(Bytes weights) {
  return std::min(weights, std::max(Bytes(weights.count() / 4), MiB(16)));
}

}  // namespace

// Bringing the model would evict only such as were used since then, when it was last asked for, half of the
// weights or more need not be there at a time, and the others fit into that room.
bool SwapScheduler::MayPass(ModelId id, const Gpu& gpu, Bytes room, const std::vector<ModelId>& victims,
                            Time since) const {
  const Model& model = models_[id];
  const Bytes window = WindowOf(model.weights);
  if (!limits_.by_layer || victims.empty() || gpu.Find(id) != nullptr) return false;
  if (window * 2 > model.weights || window + model.activation > room) return false;
  return std::ranges::all_of(victims, [&](ModelId victim) { return gpu.Find(victim)->last_use > since; });
}

bool SwapScheduler::PassesThrough(const Entry& entry, const Gpu& gpu,
                                  const std::vector<ModelId>& victims) const {
  if (entry.whole || !entry.request.state.empty() || entry.request.trial || entry.suspect) return false;
  return WaitingFor(entry.model) <= 1 && MayPass(entry.model, gpu, gpu.Free(), victims, entry.asked_before);
}

void SwapScheduler::PassThrough(Entry& entry, GpuIndex gpu, Time now) {
  const Model& model = models_[entry.model];
  entry.source = SwapSource::kLayers;
  entry.hit = entry.pinned = false;
  entry.activation = WindowOf(model.weights) + model.activation;
  ++counts_.by_layer;
  entry.work = std::max(costs_.RunTime(model.cost), costs_.LoadTime(model.weights));
  gpus_.Visit(gpu, entry.activation, entry.work, now);
}

}  // namespace troupe::node

// What makes room for a request: who goes, in the eviction policy's order; and what passes through without
// anybody going.
#include <algorithm>

#include "node/isolation.hpp"
#include "node/swap_scheduler.hpp"

namespace troupe::node {

namespace {
constexpr std::int32_t kBoundTier = 1000;  // behind every tier of an eviction policy
}  // namespace

double SwapScheduler::RateOf(const std::string& name, Time now) const {
  const auto model = models_.find(name);
  if (model == models_.end() || model->second.asked == Time::min()) return 0;
  // It was not asked for since then: its rate is no higher.
  const Duration silent = now - model->second.asked;
  return 1 / std::max(ToSeconds(std::max(model->second.gap.Or(silent), silent)), 1e-6);
}

std::vector<EvictionCandidate> SwapScheduler::EvictionOrder(const Entry& entry, const Gpu& gpu,
                                                            Time now) const {
  const double busy = std::min(1.0, link_pressure_.At(now));  // nobody waits for a link that is idle
  std::vector<std::pair<EvictionRank, EvictionCandidate>> ranked;
  for (const auto& [model, resident] : gpu.residents) {
    if (!resident.Idle() || model == entry.request.model) continue;
    const EvictionCandidate candidate{.model = model,
                                      .bytes = resident.WithStates(),
                                      .last_use = resident.last_use,
                                      .replicas = gpus_.HolderCount(model),
                                      .wanted = queue_.Find(model) != nullptr,
                                      .heavy = costs_.Heavy(DigestOf(model), resident.bytes),
                                      .rate = RateOf(model, now),
                                      .load = FromSeconds(ToSeconds(costs_.LoadTime(resident.bytes)) * busy),
                                      .delay = costs_.SwapDelay(DigestOf(model), resident.bytes)};
    ranked.emplace_back(policies_.eviction(candidate), candidate);
    // Nothing bound goes, unless a model outgrew what was kept for it.
    if (binding_.Bound(model)) ranked.back().first.tier += kBoundTier;
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<EvictionCandidate> order;
  for (const auto& [rank, candidate] : ranked) order.push_back(candidate);
  return order;
}

// What could be evicted for the request.
Bytes SwapScheduler::OthersIdle(const Entry& entry, const Gpu& gpu) const {
  const Resident* own = gpu.Find(entry.request.model);
  return own != nullptr && own->Idle() ? gpu.idle - own->WithStates() : gpu.idle;
}

// False when the request does not fit even after evicting all that may go. Else `victims` (may be null) are
// those to evict: in the policy's order, without those that turned out to be needless.
bool SwapScheduler::PlanVictims(const Entry& entry, const Gpu& gpu, Time now,
                                std::vector<std::string>* victims) const {
  const Bytes need = Need(entry, gpu);
  const auto hint = hints_.find({gpu.index, entry.request.model});
  const Bytes target = hint == hints_.end() ? need : need + hint->second.extra;
  Bytes room = gpu.Free();
  if (room >= target) return true;
  if (victims == nullptr && room + OthersIdle(entry, gpu) >= target) return true;
  std::vector<EvictionCandidate> chosen;
  for (const EvictionCandidate& candidate : EvictionOrder(entry, gpu, now)) {
    chosen.push_back(candidate);
    room += candidate.bytes;
    if (room >= target) break;
  }
  if (room < target) {
    // With nothing else on the GPU neither fragments nor an earlier NoFit count: the worker will tell.
    const std::size_t own = gpu.Find(entry.request.model) != nullptr ? 1 : 0;
    const bool alone =
        gpu.in_flight == 0 && gpu.strange == Bytes(0) && chosen.size() + own == gpu.residents.size();
    if (!alone || room + gpu.overhead < need) return false;
  } else {
    std::erase_if(chosen, [&](const EvictionCandidate& candidate) {
      if (room < target + candidate.bytes) return false;
      room -= candidate.bytes;
      return true;
    });
  }
  if (victims != nullptr) {
    for (const EvictionCandidate& candidate : chosen) victims->emplace_back(candidate.model);
  }
  return true;
}

void SwapScheduler::Evict(GpuIndex gpu, const std::string& model) {
  ++counts_.evictions;
  const Bytes bytes = gpus_.at(gpu).Find(model)->bytes;
  if (gpus_.HolderCount(model) > 1) {
    ++counts_.evicted_replicas;
  } else {
    ++(costs_.Heavy(DigestOf(model), bytes) ? counts_.evicted_heavy : counts_.evicted_light);
  }
  gpus_.BeginEvict(gpu, model);
  states_.BeginEvict(gpu, model);
  if (const auto left = models_.find(model); left != models_.end() && left->second.parked == gpu)
    Activate(model);
}

namespace {

// What a model takes of a GPU that it passes through: the worker plans it by what the steps read, and answers
// NoFit when this is too little.
Bytes WindowOf(Bytes weights) {
  return std::min(weights, std::max(Bytes(weights.count() / 4), MiB(16)));
}

}  // namespace

// Nobody else waits for the model, bringing it would evict one that was used since the model was last asked
// for, and half of the weights or more need not be there at a time.
bool SwapScheduler::PassesThrough(const Entry& entry, const Gpu& gpu, const Dispatch& dispatch) const {
  const std::string& name = entry.request.model;
  const Model& model = models_.at(name);
  const Bytes window = WindowOf(model.weights);
  if (!limits_.by_layer || entry.whole || !entry.request.state.empty() || entry.request.trial ||
      entry.suspect)
    return false;
  if (dispatch.victims.empty() || gpu.Find(name) != nullptr || WaitingFor(name) > 1) return false;
  if (window * 2 > model.weights || window + model.activation > gpu.Free()) return false;
  return std::ranges::all_of(dispatch.victims, [&](const std::string& victim) {
    return gpu.Find(victim)->last_use > entry.asked_before;
  });
}

void SwapScheduler::PassThrough(Entry& entry, Dispatch& dispatch, Time now) {
  const Model& model = models_.at(entry.request.model);
  dispatch.victims.clear();
  entry.source = SwapSource::kLayers;
  entry.hit = entry.pinned = false;
  entry.activation = WindowOf(model.weights) + model.activation;
  ++counts_.by_layer;
  gpus_.Visit(dispatch.gpu, entry.activation,
              std::max(costs_.RunTime(DigestOf(entry.request.model)), costs_.LoadTime(model.weights)), now);
}

}  // namespace troupe::node

#include "node/scheduling/victim_planner.hpp"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "base/check.hpp"

namespace troupe::node {

namespace {
constexpr std::int32_t kBoundTier = 1000;  // behind every tier of an eviction policy
}  // namespace

double VictimPlanner::RateOf(const ModelEntry& model, Time now) const {
  if (!model.adopted || model.asked == Time::min()) return 0;
  // Without a request since then its rate is no higher.
  const Duration silent = now - model.asked;
  return 1 / std::max(ToSeconds(std::max(model.gap.Or(silent), silent)), 1e-6);
}

// Models that may be evicted, unordered; of one rank the first by name goes first.
std::vector<Victim> VictimPlanner::MayGo(ModelId coming, const Gpu& gpu, Time now) const {
  const double busy = std::min(1.0, tables_.pressure.on_links.At(now));  // no transfer waits for an idle link
  std::vector<Victim> victims;
  victims.reserve(gpu.residents.size());
  for (const auto& [id, resident] : gpu.residents) {
    if (!resident.Idle() || id == coming) continue;
    const ModelEntry& model = tables_.models[id];
    const SwapCosts costs = tables_.times.costs.CostsOf(model.cost, resident.bytes, gpu.kind);
    const EvictionCandidate candidate{
        .bytes = resident.WithStates(),
        .last_use = resident.last_use,
        .replicas = tables_.gpus.holders().Count(id),
        .wanted = tables_.requests.queue.Find(id) != nullptr || model.kept_until > now,
        .heavy = costs.heavy,
        .rate = RateOf(model, now),
        .load = FromSeconds(ToSeconds(costs.load) * busy),
        .slack = model.patience.known() ? model.patience.Or({}) - costs.run : Duration::max(),
        .delay = costs.delay,
        .run = costs.run};
    victims.push_back({tables_.rules.policies.eviction(candidate), id, candidate.bytes});
    // A model that is bound to its GPU goes only when another one outgrew the room that was kept for it.
    if (!tables_.homes.binding.late() && tables_.homes.binding.Bound(id))
      victims.back().rank.tier += kBoundTier;
    // A model that is to stay on this GPU for its function goes only when the others do not make enough room.
    if (!tables_.rights.owned.empty() && tables_.rights.owned.Keeps(tables_.models.NameOf(id), gpu.device))
      victims.back().rank.tier += kBoundTier;
  }
  return victims;
}

Bytes VictimPlanner::Target(ModelId model, const Gpu& gpu, Bytes need) const {
  if (tables_.models.hints.empty()) return need;
  const auto hint = tables_.models.hints.find({gpu.index, model});
  return hint == tables_.models.hints.end() ? need : need + hint->second.extra;
}

// With nothing else on the GPU neither fragments nor an earlier NoFit count: the worker will tell. `room`:
// with all evicted that may be.
bool VictimPlanner::FitsAlone(const Gpu& gpu, const Resident* own, Bytes need, Bytes room) const {
  if (gpu.in_flight > 0 || gpu.strange > Bytes() || room + gpu.overhead < need) return false;
  return std::ranges::all_of(gpu.residents,
                             [&](const auto& there) { return &there.second == own || there.second.Idle(); });
}

bool VictimPlanner::CanMakeRoom(const RequestLook& look, const Gpu& gpu, const Resident* own,
                                Bytes need) const {
  const Bytes target = Target(look.entry.model, gpu, need);
  const Bytes free = gpu.Free();
  if (free >= target) return true;
  const Bytes models = own != nullptr && own->Idle() ? gpu.idle - own->WithStates() : gpu.idle;
  const Bytes others = models + RoomOfStates(look.entry, gpu);
  return free + others >= target || FitsAlone(gpu, own, need, free + others);
}

std::vector<StateNumber> VictimPlanner::StatesToGo(const RequestEntry& entry, const Gpu& gpu) const {
  std::vector<StateNumber> states;
  const Resident* const own = gpu.Find(entry.model);
  if (own == nullptr || own->states.empty()) return states;
  for (const auto& [key, bytes] : own->states) {
    const FunctionStates::State* const state = tables_.states.Find(key);
    if (state != nullptr && state->MayLeave(gpu.index) && !(key == entry.request.state))
      states.push_back(key);
  }
  return states;
}

Bytes VictimPlanner::RoomOfStates(const RequestEntry& entry, const Gpu& gpu) const {
  Bytes room;
  for (const StateNumber& key : StatesToGo(entry, gpu)) room += gpu.Find(entry.model)->states.at(key);
  return room;
}

std::vector<StateNumber> VictimPlanner::PlanStates(const RequestEntry& entry, Bytes need,
                                                   const Gpu& gpu) const {
  const Bytes target = Target(entry.model, gpu, need);
  Bytes room = gpu.Free();
  if (room >= target) return {};
  std::vector<StateNumber> states = StatesToGo(entry, gpu);
  std::ranges::sort(states, {}, [&](const StateNumber& key) {
    const FunctionStates::State& state = *tables_.states.Find(key);
    return std::tuple(!state.line.empty(), state.used, std::string_view(key.text()));
  });
  std::size_t count = 0;
  while (count < states.size() && room < target) room += gpu.Find(entry.model)->states.at(states[count++]);
  states.resize(count);
  return states;
}

VictimPlanner::Victims VictimPlanner::Choose(ModelId model, Bytes need, Bytes room, const Gpu& gpu,
                                             Time now) const {
  const Bytes target = Target(model, gpu, need);
  if (room >= target) return {};
  std::vector<Victim> candidates = MayGo(model, gpu, now);
  const auto later = [&](const Victim& a, const Victim& b) {
    return a.rank != b.rank ? a.rank > b.rank
                            : tables_.models.NameOf(a.model).text() > tables_.models.NameOf(b.model).text();
  };
  Victims chosen;
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
  return chosen;
}

std::vector<ModelId> VictimPlanner::Plan(ModelId model, Bytes need, const Gpu& gpu, Time now) const {
  std::vector<ModelId> victims;
  for (const Victim& victim : Choose(model, need, gpu.Free(), gpu, now)) victims.push_back(victim.model);
  return victims;
}

EvictionRank VictimPlanner::WorstVictim(const RequestEntry& entry, Bytes need, const Gpu& gpu,
                                        Time now) const {
  EvictionRank worst = kNothingGoes;
  const Bytes room = gpu.Free() + RoomOfStates(entry, gpu);
  for (const Victim& victim : Choose(entry.model, need, room, gpu, now)) worst = std::max(worst, victim.rank);
  return worst;
}

Bytes VictimPlanner::WindowOf(Bytes weights) {
  return std::min(weights, std::max(Bytes(weights.count() / 4), MiB(16)));
}

bool VictimPlanner::MayPass(ModelId id, const Gpu& gpu, Bytes room, const std::vector<ModelId>& victims,
                            Time since) const {
  const ModelEntry& model = tables_.models[id];
  const Bytes window = WindowOf(model.weights);
  if (tables_.rules.limits.by_layer == ByLayer::kOff || victims.empty() || gpu.Find(id) != nullptr)
    return false;
  if (window * 2 > model.weights || window + model.activation > room) return false;
  return std::ranges::all_of(victims, [&](ModelId victim) { return gpu.Find(victim)->last_use > since; });
}

bool VictimPlanner::PassesThrough(const RequestEntry& entry, const Gpu& gpu,
                                  const std::vector<ModelId>& victims) const {
  if (entry.whole || entry.request.state || entry.request.trial || entry.suspect) return false;
  return tables_.requests.WaitingFor(entry.model) <= 1 &&
         MayPass(entry.model, gpu, gpu.Free(), victims, entry.asked_before);
}

}  // namespace troupe::node

// Decisions GPU by GPU rather than request by request: locality-aware load balancing (LALB, 003, IV). An idle
// GPU serves what waits in its own queue (its pipeline), else the first request whose model it has, else what
// Algorithm 2 says.
#include "node/scheduling/locality_turns.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "node/scheduling/scheduler_parts.hpp"

namespace troupe::node {

std::vector<GpuIndex> LocalityTurns::IdleGpus() const {
  std::vector<std::pair<std::uint64_t, GpuIndex>> idle;
  tables_.gpus.ready().InOrder([&](const GpuPlace& place) {
    if (place.in_flight() > 0) return false;
    idle.emplace_back(dispatched_to_[place.gpu], place.gpu);
    return true;
  });
  std::ranges::sort(idle, [](const auto& a, const auto& b) {
    return std::tuple(b.first, a.second) < std::tuple(a.first, b.second);
  });
  std::vector<GpuIndex> out;
  for (const auto& [used, index] : idle) out.push_back(index);
  return out;
}

bool LocalityTurns::MayStart(const RequestEntry& entry) {
  return tables_.models[entry.model].in_region && parts_.states.NextOf(entry.model) == &entry &&
         !parts_.requests.MustTakeTurns(entry);
}

GpuIndex LocalityTurns::PlaceFor(const RequestEntry& entry, GpuIndex index, Time now) const {
  const RequestLook look = tables_.LookFor(entry);
  const Gpu& own = tables_.gpus.at(index);
  // With its run, which does not take as long on GPUs of each kind (003, VI).
  const auto end_on = [&](const Gpu& gpu) {
    return gpu.work.Left(now) + tables_.times.RunTimeOn(entry, gpu.kind);
  };
  GpuIndex busy = kNoGpu;
  for (const GpuIndex holder : tables_.gpus.Holders(entry.model)) {
    const Gpu& gpu = tables_.gpus.at(holder);
    if (holder == index || !parts_.chooser.CanTake(look, gpu, gpu.Find(entry.model))) continue;
    if (tables_.gpus.loads().InFlightOn(gpu.device) == 0) return holder;
    if (busy == kNoGpu || end_on(gpu) < end_on(tables_.gpus.at(busy))) busy = holder;
  }
  const Duration brought =
      tables_.times.LoadTimeOn(look.model, own.kind) + tables_.times.RunTimeOn(entry, own.kind);
  if (busy != kNoGpu && end_on(tables_.gpus.at(busy)) < brought) return busy;
  return parts_.chooser.CanTake(look, own, own.Find(entry.model)) ? index : kNoGpu;
}

std::optional<OrderingKey> LocalityTurns::FirstHit(const Gpu& gpu) {
  std::optional<OrderingKey> first;
  for (const auto& [model, resident] : gpu.residents) {
    const auto* waiting = tables_.requests.queue.Find(model);
    if (waiting == nullptr || (first && *first < waiting->begin()->first)) continue;
    const RequestEntry* entry = parts_.states.NextOf(model);
    if (entry == nullptr || !MayStart(*entry) ||
        !parts_.chooser.CanTake(tables_.LookFor(*entry), gpu, &resident))
      continue;
    if (!first || entry->key < *first) first = entry->key;
  }
  return first;
}

void LocalityTurns::Decide(Time now) {
  LocalityQueue& locality = *parts_.waiting.locality();
  std::vector<const RequestEntry*> gone;  // no key changes while a turn goes through them
  const auto dispatch = [&](const OrderingKey& key, GpuIndex to) {
    ++dispatched_to_[to];
    gone.push_back(&parts_.waiting.At(key));
    parts_.decision.dispatches.push_back(
        parts_.reservations.Reserve(parts_.waiting.At(key), {GpuVerdict::kRun, to}, now));
  };
  for (const GpuIndex index : IdleGpus()) {
    const Gpu& gpu = tables_.gpus.at(index);
    if (locality.size() == 0) break;
    if (tables_.gpus.loads().InFlightOn(gpu.device) > 0)
      continue;  // it was given something for another one's turn
    const auto has = [&](const OrderingKey& key) {
      const RequestEntry& entry = parts_.waiting.At(key);
      const Resident* const resident = gpu.Find(entry.model);
      return resident != nullptr && MayStart(entry) &&
             parts_.chooser.CanTake(tables_.LookFor(entry), gpu, resident);
    };
    const auto first_hit = [&] { return FirstHit(gpu); };
    const auto place = [&](const OrderingKey& key) {
      const RequestEntry& entry = parts_.waiting.At(key);
      const GpuIndex to = MayStart(entry) ? PlaceFor(entry, index, now) : kNoGpu;
      if (to == kNoGpu) return LocalityPlace::kNowhere;
      dispatch(key, to);
      return to == index ? LocalityPlace::kHere : LocalityPlace::kElsewhere;
    };
    const LocalityTurn turn{.has = has, .first_hit = first_hit, .place = place};
    if (const auto hit = locality.Turn(turn)) dispatch(*hit, index);
    for (const RequestEntry* const entry : std::exchange(gone, {})) parts_.waiting.GiveTurn(*entry);
  }
}

}  // namespace troupe::node

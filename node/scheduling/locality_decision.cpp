// Decisions GPU by GPU rather than request by request: locality-aware load balancing (LALB, 003, IV). An idle
// GPU serves what waits in its own queue (its pipeline), else the first request whose model it has, else what
// Algorithm 2 says.
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "node/scheduling/swap_scheduler.hpp"

namespace troupe::node {

// The ones that are used most come first.
std::vector<GpuIndex> SwapScheduler::IdleGpus() const {
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

bool SwapScheduler::MayStart(const Entry& entry) {
  return tables_.models[entry.model].in_region && NextOf(entry.model) == &entry && !MustTakeTurns(entry);
}

// Algorithm 2 for the request, asked by the idle GPU `index`: where it goes; kNoGpu: it stays.
GpuIndex SwapScheduler::PlaceByLocality(const Entry& entry, GpuIndex index, Time now) const {
  const Look look = tables_.LookFor(entry);
  GpuIndex busy = kNoGpu;
  for (const GpuIndex holder : tables_.gpus.Holders(entry.model)) {
    const Gpu& gpu = tables_.gpus.at(holder);
    if (holder == index || !chooser_.CanTake(look, gpu, gpu.Find(entry.model))) continue;
    if (tables_.gpus.InFlightOn(gpu.device) == 0) return holder;
    if (busy == kNoGpu || gpu.work.Left(now) < tables_.gpus.at(busy).work.Left(now)) busy = holder;
  }
  if (busy != kNoGpu && tables_.gpus.at(busy).work.Left(now) < look.load) return busy;
  const Gpu& own = tables_.gpus.at(index);
  return chooser_.CanTake(look, own, own.Find(entry.model)) ? index : kNoGpu;
}

std::optional<OrderingKey> SwapScheduler::FirstHit(const Gpu& gpu) {
  std::optional<OrderingKey> first;
  for (const auto& [model, resident] : gpu.residents) {
    const auto* waiting = tables_.queue.Find(model);
    if (waiting == nullptr || (first && *first < waiting->begin()->first)) continue;
    const Entry* entry = NextOf(model);
    if (entry == nullptr || !MayStart(*entry) || !chooser_.CanTake(tables_.LookFor(*entry), gpu, &resident))
      continue;
    if (!first || entry->key < *first) first = entry->key;
  }
  return first;
}

void SwapScheduler::DecideByLocality(Time now) {
  std::vector<const Entry*> gone;  // no key changes while a turn goes through them
  const auto dispatch = [&](const OrderingKey& key, GpuIndex to) {
    ++dispatched_to_[to];
    gone.push_back(waiting_.at(key));
    decision_.dispatches.push_back(MakeDispatch(*waiting_.at(key), {GpuVerdict::kRun, to}, now));
  };
  for (const GpuIndex index : IdleGpus()) {
    const Gpu& gpu = tables_.gpus.at(index);
    if (locality_->size() == 0) break;
    if (tables_.gpus.InFlightOn(gpu.device) > 0) continue;  // it was given something for another one's turn
    const auto has = [&](const OrderingKey& key) {
      const Entry& entry = *waiting_.at(key);
      const Resident* const resident = gpu.Find(entry.model);
      return resident != nullptr && MayStart(entry) &&
             chooser_.CanTake(tables_.LookFor(entry), gpu, resident);
    };
    const auto first_hit = [&] { return FirstHit(gpu); };
    const auto place = [&](const OrderingKey& key) {
      const Entry& entry = *waiting_.at(key);
      const GpuIndex to = MayStart(entry) ? PlaceByLocality(entry, index, now) : kNoGpu;
      if (to == kNoGpu) return LocalityPlace::kNowhere;
      dispatch(key, to);
      return to == index ? LocalityPlace::kHere : LocalityPlace::kElsewhere;
    };
    const LocalityTurn turn{.has = has, .first_hit = first_hit, .place = place};
    if (const auto hit = locality_->Turn(turn)) dispatch(*hit, index);
    for (const Entry* const entry : std::exchange(gone, {})) GiveTurn(*entry);
  }
}

}  // namespace troupe::node

// Decisions GPU by GPU rather than request by request: locality-aware load balancing (LALB, 003, IV). An idle
// GPU serves what waits in its own queue (its pipeline), else the first request whose model it has, else what
// Algorithm 2 says.
#include <algorithm>
#include <optional>
#include <tuple>

#include "node/swap_scheduler.hpp"

namespace troupe::node {

// The ones that are used most come first.
std::vector<GpuIndex> SwapScheduler::IdleGpus() const {
  std::vector<std::pair<std::uint64_t, GpuIndex>> idle;
  for (const GpuTable::Place& place : gpus_.ready()) {
    if (place.in_flight > 0) break;
    const auto used = dispatched_to_.find(place.gpu);
    idle.emplace_back(used == dispatched_to_.end() ? 0 : used->second, place.gpu);
  }
  std::ranges::sort(idle, [](const auto& a, const auto& b) {
    return std::tuple(b.first, a.second) < std::tuple(a.first, b.second);
  });
  std::vector<GpuIndex> out;
  for (const auto& [used, index] : idle) out.push_back(index);
  return out;
}

bool SwapScheduler::MayStart(const Entry& entry) {
  return models_.at(entry.request.model).in_region && NextOf(entry.request.model) == &entry &&
         !MustTakeTurns(entry);
}

bool SwapScheduler::CanTake(const Entry& entry, const Gpu& gpu, Time now) const {
  if (gpu.worker != WorkerState::kReady || !CanEverFit(entry.request.model, gpu)) return false;
  if (!StateAllows(entry, gpu.index) || !Serves(entry, gpu)) return false;
  const GpuOption option = OptionFor(entry, gpu, now);
  return option.has_slot && option.fits;
}

// Algorithm 2 for the request, asked by the idle GPU `index`: where it goes; kNoGpu: it stays.
GpuIndex SwapScheduler::PlaceByLocality(const Entry& entry, GpuIndex index, Time now) const {
  GpuIndex busy = kNoGpu;
  for (const GpuIndex holder : gpus_.Holders(entry.request.model)) {
    const Gpu& gpu = gpus_.at(holder);
    if (holder == index || !CanTake(entry, gpu, now)) continue;
    if (gpus_.InFlightOn(gpu.device) == 0) return holder;
    if (busy == kNoGpu || gpu.busy_until < gpus_.at(busy).busy_until) busy = holder;
  }
  const Duration load = LoadTimeOf(entry.request.model);
  if (busy != kNoGpu && gpus_.at(busy).busy_until - now < load) return busy;
  return CanTake(entry, gpus_.at(index), now) ? index : kNoGpu;
}

std::optional<OrderingKey> SwapScheduler::FirstHit(const Gpu& gpu, Time now) {
  std::optional<OrderingKey> first;
  const auto look = [&](const std::string& model) {
    const auto* waiting = queue_.Find(model);
    if (waiting == nullptr || (first && *first < waiting->begin()->first)) return;
    const Entry* entry = NextOf(model);
    if (entry == nullptr || !MayStart(*entry) || !CanTake(*entry, gpu, now)) return;
    if (!first || entry->key < *first) first = entry->key;
  };
  for (const auto& [model, resident] : gpu.residents) look(model);
  return first;
}

std::vector<Dispatch> SwapScheduler::DecideByLocality(Time now) {
  Reorder(now);
  look_again_ = Time::max();
  std::vector<Dispatch> dispatches;
  const auto dispatch = [&](const OrderingKey& key, GpuIndex to) {
    ++dispatched_to_[to];
    dispatches.push_back(MakeDispatch(requests_.at(waiting_.at(key)), {GpuVerdict::kRun, to}, now));
  };
  for (const GpuIndex index : IdleGpus()) {
    const Gpu& gpu = gpus_.at(index);
    if (locality_->size() == 0) break;
    if (gpus_.InFlightOn(gpu.device) > 0) continue;  // it was given something for another one's turn
    const LocalityTurn turn{
        .has =
            [&](const OrderingKey& key) {
              const Entry& entry = requests_.at(waiting_.at(key));
              return gpu.Find(entry.request.model) != nullptr && MayStart(entry) && CanTake(entry, gpu, now);
            },
        .first_hit = [&] { return FirstHit(gpu, now); },
        .place =
            [&](const OrderingKey& key) {
              const Entry& entry = requests_.at(waiting_.at(key));
              const GpuIndex to = MayStart(entry) ? PlaceByLocality(entry, index, now) : kNoGpu;
              if (to == kNoGpu) return LocalityPlace::kNowhere;
              dispatch(key, to);
              return to == index ? LocalityPlace::kHere : LocalityPlace::kElsewhere;
            }};
    if (const auto hit = locality_->Turn(turn)) dispatch(*hit, index);
  }
  return dispatches;
}

}  // namespace troupe::node

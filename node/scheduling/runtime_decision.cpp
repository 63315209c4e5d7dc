// The swap scheduler and its runtimes: which of them a request may use, which one is made to serve whom, and
// which one is kept for a request.
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "base/check.hpp"
#include "node/runtimes/isolation.hpp"
#include "node/scheduling/swap_scheduler.hpp"

namespace troupe::node {

bool SwapScheduler::KeyWaits(const std::string& key) const {
  return std::ranges::any_of(tables_.queue.waiting(), [&](ModelId model) {
    return tables_.models[model].in_region && tables_.models[model].key == key;
  });
}

// Time enough has passed since then. If not, Decide is due when it has.
bool SwapScheduler::Settled(Time since, Time now) {
  const Time due = since + tables_.limits.settle;
  if (due > now) look_again_ = std::min(look_again_, due);
  return due <= now;
}

// True when this runtime may be taken away for a request that finds no other: it is idle, and nobody waits
// for it; one that was kept for the request may go although others wait for it, so that nobody waits for
// ever.
bool SwapScheduler::MayTake(const Entry& entry, const Gpu& gpu, Time now) {
  if (tables_.Serves(entry, gpu) || tables_.held.HeldByOther(entry, gpu.index) || !tables_.gpus.Takeable(gpu))
    return false;
  if (!tables_.CanEverFit(entry.model, gpu) || !tables_.StateAllows(entry, gpu)) return false;
  if (tables_.policies.gpu.early_binding && gpu.device != tables_.Home(entry.model)) return false;
  const std::string& key = tables_.models[entry.model].key;
  if (tables_.gpus.Served(key, gpu.device)) return false;
  if (!gpu.assigned || entry.hold == gpu.index) return true;
  if (KeyWaits(gpu.key)) return false;
  // Who has a runtime elsewhere takes a second one only from somebody who does not need it.
  if (tables_.gpus.Served(key, std::nullopt)) return Settled(gpu.idle_since, now);
  // One that is being started will be warm in a moment, and costs nobody his.
  return !tables_.gpus.Starting() || Settled(entry.arrival, now);
}

// A request was not placed on a runtime of its key: one is made for it, where that can be done.
void SwapScheduler::SeekRuntime(Entry& entry, const GpuChoice& choice, Time now) {
  const std::string& key = tables_.models[entry.model].key;
  if ((tables_.OneForAll() && key.empty()) || tables_.gpus.Coming(key) || entry.request.trial) return;
  // To wait for a busy one is no worse than to start another, unless it has lasted.
  if (choice.verdict == GpuVerdict::kWait && !Settled(entry.arrival, now)) return;
  if (choice.verdict == GpuVerdict::kRun) return Assign(choice.gpu, {true, key});
  const Gpu* best = nullptr;
  const auto rank = [&](const Gpu& gpu) {
    return std::tuple(gpu.index != entry.hold, gpu.assigned, tables_.gpus.InFlightOn(gpu.device),
                      gpu.idle_since, gpu.index);
  };
  for (const auto& [index, gpu] : tables_.gpus.gpus()) {
    if (!MayTake(entry, gpu, now)) continue;
    if (best == nullptr || rank(gpu) < rank(*best)) best = &gpu;
  }
  if (best == nullptr) return;
  const GpuIndex taken = best->index;
  if (!ClearStates(taken)) return;
  Release(entry);
  Assign(taken, {true, key});
}

// Its worker may go. False: models with state are sent away first, and it may when they are gone.
bool SwapScheduler::ClearStates(GpuIndex index) {
  std::vector<ModelId> models = GpuTable::WithStates(tables_.gpus.at(index));
  std::ranges::sort(models, {}, [&](ModelId model) -> const std::string& { return tables_.NameOf(model); });
  for (const ModelId model : models) {
    Evict(index, model);
    decision_.departures.push_back({index, tables_.NameOf(model)});
  }
  return models.empty();
}

void SwapScheduler::Assign(GpuIndex index, const node::Serves& serves) {
  const Gpu& gpu = tables_.gpus.at(index);
  Assignment order{
      .gpu = index, .assigned = serves.assigned, .key = serves.key, .fresh = gpu.assigned, .from = gpu.key};
  ++(!serves.assigned ? counts_.given_back : gpu.assigned ? counts_.taken : counts_.assigned);
  if (tables_.held.HolderOf(index) != nullptr) Release(*tables_.held.HolderOf(index));
  std::erase_if(tables_.hints, [&](const auto& hint) { return hint.first.first == index; });
  tables_.gpus.BeginAssign(index, serves.key);
  tables_.states.WorkerGone(index);
  decision_.assignments.push_back(std::move(order));
}

bool SwapScheduler::AtHome(const Gpu& gpu) const {
  return tables_.limits.isolated ? !gpu.assigned : gpu.assigned && gpu.key.empty();
}

void SwapScheduler::GiveBack(Time now, Duration idle) {
  std::vector<GpuIndex> back;
  for (const auto& [index, gpu] : tables_.gpus.gpus()) {
    if (AtHome(gpu) || !tables_.gpus.Takeable(gpu) || tables_.held.HolderOf(index) != nullptr) continue;
    if (now - gpu.idle_since >= idle && !KeyWaits(gpu.key)) back.push_back(index);
  }
  for (const GpuIndex index : back) {
    if (!ClearStates(index)) continue;
    Assign(index, {!tables_.limits.isolated, {}});
    // Nobody's is not a key that somebody could wait for.
    if (tables_.limits.isolated) tables_.gpus.ForgetComing(index);
  }
}

Time SwapScheduler::NextIdle(Duration idle) const {
  Time due = Time::max();
  for (const auto& [index, gpu] : tables_.gpus.gpus()) {
    if (gpu.worker == WorkerState::kReady && gpu.in_flight == 0 && !AtHome(gpu))
      due = std::min(due, gpu.idle_since + idle);
  }
  return due;
}

bool SwapScheduler::MayHold(const Entry& entry, const Gpu& gpu) const {
  if (gpu.worker != WorkerState::kReady || tables_.held.HolderOf(gpu.index) != nullptr) return false;
  if (!tables_.CanEverFit(entry.model, gpu) || !tables_.StateAllows(entry, gpu)) return false;
  if (tables_.policies.gpu.early_binding && gpu.device != tables_.Home(entry.model)) return false;
  // Where its key has a runtime it waits for that one.
  return tables_.Serves(entry, gpu) || !tables_.gpus.Served(tables_.models[entry.model].key, gpu.device);
}

// Keeps a GPU for a request: one that has its model before others, the one that will be empty first (of
// many GPUs: of the least busy ones). Without
// a GPU that nobody holds the request keeps its place in the queue, and tries again when it is passed again.
void SwapScheduler::HoldFor(Entry& entry) {
  if (!tables_.OneForAll() && tables_.gpus.Coming(tables_.models[entry.model].key)) return;
  const Gpu* best = nullptr;
  const auto rank = [&](const Gpu& gpu) {
    return std::tuple(!tables_.Serves(entry, gpu), gpu.Find(entry.model) == nullptr, gpu.in_flight,
                      gpu.work.whole(), gpu.index);
  };
  const auto consider = [&](const Gpu& gpu) {
    if (!MayHold(entry, gpu)) return false;
    if (best == nullptr || rank(gpu) < rank(*best)) best = &gpu;
    return true;
  };
  if (tables_.LooksAtAll(tables_.models[entry.model])) {
    for (const auto& [index, gpu] : tables_.gpus.gpus()) consider(gpu);
  } else {
    for (const GpuIndex holder : tables_.gpus.Holders(entry.model)) consider(tables_.gpus.at(holder));
    std::size_t some = best == nullptr ? kSomeGpus : 0;
    tables_.gpus.ready().InOrder([&](const GpuPlace& place) {
      if (some > 0) some -= consider(tables_.gpus.at(place.gpu)) ? 1 : 0;
      return some > 0;
    });
  }
  if (best == nullptr) return;
  tables_.held.Hold(entry, best->index);
}

// A GPU that turned out to be too small for the model, or that is its home no more, is kept in vain.
void SwapScheduler::LeaveUselessHold(Entry& entry) {
  if (entry.hold == kNoGpu) return;
  const Gpu& gpu = tables_.gpus.at(entry.hold);
  const bool fits = tables_.CanEverFit(entry.model, gpu) && tables_.StateAllows(entry, gpu);
  const bool has_other =
      !tables_.Serves(entry, gpu) && tables_.gpus.Served(tables_.models[entry.model].key, gpu.device);
  const bool away = tables_.policies.gpu.early_binding && gpu.device != tables_.Home(entry.model);
  if (!fits || has_other || away) Release(entry);
}

void SwapScheduler::Release(Entry& entry) {
  const GpuIndex gpu = tables_.held.Release(entry);
  if (gpu != kNoGpu) Wake(gpu);
}

}  // namespace troupe::node

// The swap scheduler and its runtimes: which of them a request may use, which one is made to serve whom, and
// which one is kept for a request.
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "base/check.hpp"
#include "node/isolation.hpp"
#include "node/swap_scheduler.hpp"

namespace troupe::node {

bool SwapScheduler::Serves(const Entry& entry, const Gpu& gpu) const {
  const std::string& key = models_[entry.model].key;
  return gpu.assigned && (OneForAll() ? key.empty() : gpu.key == key);
}

bool SwapScheduler::HeldByOther(const Entry& entry, GpuIndex gpu) const {
  return holds_[gpu] != nullptr && holds_[gpu] != &entry;
}

// Places of the device that are kept for others, with its other runtimes: without them those could drain, and
// would never be begun on.
std::uint32_t SwapScheduler::KeptPlaces(const Entry& entry, const Gpu& gpu) const {
  std::uint32_t kept = held_[gpu.device];
  if (kept == 0) return 0;
  if (holds_[gpu.index] != nullptr) --kept;
  const bool own = entry.hold != kNoGpu && entry.hold != gpu.index;
  return own && gpus_.at(entry.hold).device == gpu.device ? kept - 1 : kept;
}

// A request is given runtimes of its key, and the first warm one of each device that has none of them: one
// runtime per key and device, so that nobody takes all of a device's. While one is coming no other is taken.
bool SwapScheduler::MayChoose(const Entry& entry, const Gpu& gpu) const {
  if (Serves(entry, gpu)) return true;
  const std::string& key = models_[entry.model].key;
  if (gpu.assigned || HeldByOther(entry, gpu.index) || !gpus_.Takeable(gpu)) return false;
  if (gpus_.Coming(key) || gpus_.Served(key, gpu.device)) return false;
  const auto& all = gpus_.gpus();
  return std::none_of(all.begin(), all.end(), [&](const auto& other) {
    const Gpu& before = other.second;
    return before.device == gpu.device && before.index < gpu.index && !before.assigned &&
           !HeldByOther(entry, before.index) && gpus_.Takeable(before);
  });
}

bool SwapScheduler::KeyWaits(const std::string& key) const {
  return std::ranges::any_of(
      queue_.waiting(), [&](ModelId model) { return models_[model].in_region && models_[model].key == key; });
}

// Time enough has passed since then. If not, Decide is due when it has.
bool SwapScheduler::Settled(Time since, Time now) {
  const Time due = since + limits_.settle;
  if (due > now) look_again_ = std::min(look_again_, due);
  return due <= now;
}

// True when this runtime may be taken away for a request that finds no other: it is idle, and nobody waits
// for it; one that was kept for the request may go although others wait for it, so that nobody waits for
// ever.
bool SwapScheduler::MayTake(const Entry& entry, const Gpu& gpu, Time now) {
  if (Serves(entry, gpu) || HeldByOther(entry, gpu.index) || !gpus_.Takeable(gpu)) return false;
  if (!CanEverFit(entry.model, gpu) || !StateAllows(entry, gpu.index)) return false;
  if (policies_.gpu.early_binding && gpu.device != Home(entry.model)) return false;
  const std::string& key = models_[entry.model].key;
  if (gpus_.Served(key, gpu.device)) return false;
  if (!gpu.assigned || entry.hold == gpu.index) return true;
  if (KeyWaits(gpu.key)) return false;
  // Who has a runtime elsewhere takes a second one only from somebody who does not need it.
  if (gpus_.Served(key, std::nullopt)) return Settled(gpu.idle_since, now);
  // One that is being started will be warm in a moment, and costs nobody his.
  return !gpus_.Starting() || Settled(entry.arrival, now);
}

// A request was not placed on a runtime of its key: one is made for it, where that can be done.
void SwapScheduler::SeekRuntime(Entry& entry, const GpuChoice& choice, Time now) {
  const std::string& key = models_[entry.model].key;
  if ((OneForAll() && key.empty()) || gpus_.Coming(key) || entry.request.trial) return;
  // To wait for a busy one is no worse than to start another, unless it has lasted.
  if (choice.verdict == GpuVerdict::kWait && !Settled(entry.arrival, now)) return;
  if (choice.verdict == GpuVerdict::kRun) return Assign(choice.gpu, {true, key});
  const Gpu* best = nullptr;
  const auto rank = [&](const Gpu& gpu) {
    return std::tuple(gpu.index != entry.hold, gpu.assigned, gpus_.InFlightOn(gpu.device), gpu.idle_since,
                      gpu.index);
  };
  for (const auto& [index, gpu] : gpus_.gpus()) {
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
  std::vector<ModelId> models = GpuTable::WithStates(gpus_.at(index));
  std::ranges::sort(models, {}, [&](ModelId model) -> const std::string& { return NameOf(model); });
  for (const ModelId model : models) {
    Evict(index, model);
    departures_.push_back({index, NameOf(model)});
  }
  return models.empty();
}

void SwapScheduler::Assign(GpuIndex index, const node::Serves& serves) {
  const Gpu& gpu = gpus_.at(index);
  Assignment order{
      .gpu = index, .assigned = serves.assigned, .key = serves.key, .fresh = gpu.assigned, .from = gpu.key};
  ++(!serves.assigned ? counts_.given_back : gpu.assigned ? counts_.taken : counts_.assigned);
  if (holds_[index] != nullptr) Release(*holds_[index]);
  std::erase_if(hints_, [&](const auto& hint) { return hint.first.first == index; });
  gpus_.BeginAssign(index, serves.key);
  states_.WorkerGone(index);
  assignments_.push_back(std::move(order));
}

bool SwapScheduler::AtHome(const Gpu& gpu) const {
  return limits_.isolated ? !gpu.assigned : gpu.assigned && gpu.key.empty();
}

void SwapScheduler::GiveBack(Time now, Duration idle) {
  std::vector<GpuIndex> back;
  for (const auto& [index, gpu] : gpus_.gpus()) {
    if (AtHome(gpu) || !gpus_.Takeable(gpu) || holds_[index] != nullptr) continue;
    if (now - gpu.idle_since >= idle && !KeyWaits(gpu.key)) back.push_back(index);
  }
  for (const GpuIndex index : back) {
    if (!ClearStates(index)) continue;
    Assign(index, {!limits_.isolated, {}});
    // Nobody's is not a key that somebody could wait for.
    if (limits_.isolated) gpus_.ForgetComing(index);
  }
}

Time SwapScheduler::NextIdle(Duration idle) const {
  Time due = Time::max();
  for (const auto& [index, gpu] : gpus_.gpus()) {
    if (gpu.worker == WorkerState::kReady && gpu.in_flight == 0 && !AtHome(gpu))
      due = std::min(due, gpu.idle_since + idle);
  }
  return due;
}

bool SwapScheduler::MayHold(const Entry& entry, const Gpu& gpu) const {
  if (gpu.worker != WorkerState::kReady || holds_[gpu.index] != nullptr) return false;
  if (!CanEverFit(entry.model, gpu) || !StateAllows(entry, gpu.index)) return false;
  if (policies_.gpu.early_binding && gpu.device != Home(entry.model)) return false;
  // Where its key has a runtime it waits for that one.
  return Serves(entry, gpu) || !gpus_.Served(models_[entry.model].key, gpu.device);
}

// Keeps a GPU for a request: one that has its model before others, the one that will be empty first (of
// many GPUs: of the least busy ones). Without
// a GPU that nobody holds the request keeps its place in the queue, and tries again when it is passed again.
void SwapScheduler::HoldFor(Entry& entry) {
  if (!OneForAll() && gpus_.Coming(models_[entry.model].key)) return;
  const Gpu* best = nullptr;
  const auto rank = [&](const Gpu& gpu) {
    return std::tuple(!Serves(entry, gpu), gpu.Find(entry.model) == nullptr, gpu.in_flight, gpu.work.whole(),
                      gpu.index);
  };
  const auto consider = [&](const Gpu& gpu) {
    if (!MayHold(entry, gpu)) return false;
    if (best == nullptr || rank(gpu) < rank(*best)) best = &gpu;
    return true;
  };
  if (LooksAtAll(models_[entry.model])) {
    for (const auto& [index, gpu] : gpus_.gpus()) consider(gpu);
  } else {
    for (const GpuIndex holder : gpus_.Holders(entry.model)) consider(gpus_.at(holder));
    std::size_t some = best == nullptr ? kSomeGpus : 0;
    gpus_.ready().InOrder([&](const GpuPlace& place) {
      if (some > 0) some -= consider(gpus_.at(place.gpu)) ? 1 : 0;
      return some > 0;
    });
  }
  if (best == nullptr) return;
  holds_[best->index] = &entry;
  ++held_[best->device];
  entry.hold = best->index;
}

// A GPU that turned out to be too small for the model, or that is its home no more, is kept in vain.
void SwapScheduler::LeaveUselessHold(Entry& entry) {
  if (entry.hold == kNoGpu) return;
  const Gpu& gpu = gpus_.at(entry.hold);
  const bool fits = CanEverFit(entry.model, gpu) && StateAllows(entry, entry.hold);
  const bool has_other = !Serves(entry, gpu) && gpus_.Served(models_[entry.model].key, gpu.device);
  const bool away = policies_.gpu.early_binding && gpu.device != Home(entry.model);
  if (!fits || has_other || away) Release(entry);
}

void SwapScheduler::Release(Entry& entry) {
  if (entry.hold == kNoGpu) return;
  const GpuIndex gpu = std::exchange(entry.hold, kNoGpu);
  holds_[gpu] = nullptr;
  --held_[gpus_.at(gpu).device];
  Wake(gpu);
}

}  // namespace troupe::node

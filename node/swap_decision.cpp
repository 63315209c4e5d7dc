// The deciding half of the swap scheduler: where a request goes, what makes room for it, who is kept a place.
#include <algorithm>
#include <tuple>

#include "base/check.hpp"
#include "node/swap_scheduler.hpp"

namespace troupe::node {

bool SwapScheduler::AnySlot() const {
  for (const auto& [index, gpu] : gpus_.gpus()) {
    if (gpu.worker == WorkerState::kReady && gpu.in_flight < limits_.pipeline_depth) return true;
  }
  return false;
}

bool SwapScheduler::HasSlot(const Entry& entry, const Gpu& gpu) const {
  const auto hold = holds_.find(gpu.index);
  if (hold != holds_.end() && hold->second != entry.request.id) return false;
  if (gpu.in_flight == 0) return true;
  if (entry.suspect || gpu.in_flight >= limits_.pipeline_depth) return false;
  const auto pipeline = pipelines_.find(gpu.index);
  return std::none_of(pipeline->second.begin(), pipeline->second.end(),
                      [&](const RequestId& id) { return requests_.at(id).suspect; });
}

Bytes SwapScheduler::Need(const Entry& entry, const Gpu& gpu) const {
  const Model& model = models_.at(entry.request.model);
  return gpu.Find(entry.request.model) != nullptr ? model.activation : model.weights + model.activation;
}

std::vector<EvictionCandidate> SwapScheduler::EvictionOrder(const Entry& entry, const Gpu& gpu) const {
  std::vector<std::pair<EvictionRank, EvictionCandidate>> ranked;
  for (const auto& [model, resident] : gpu.residents) {
    if (resident.state != ResidentState::kResident || model == entry.request.model) continue;
    const EvictionCandidate candidate{.model = model,
                                      .bytes = resident.bytes,
                                      .last_use = resident.last_use,
                                      .replicas = gpus_.HolderCount(model),
                                      .wanted = queue_.Find(model) != nullptr};
    ranked.emplace_back(policies_.eviction(candidate), candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<EvictionCandidate> order;
  for (const auto& [rank, candidate] : ranked) order.push_back(candidate);
  return order;
}

// False when the request does not fit even after evicting all that may go. Else `victims` (may be null) are
// those to evict: in the policy's order, without those that turned out to be needless.
bool SwapScheduler::PlanVictims(const Entry& entry, const Gpu& gpu, std::vector<std::string>* victims) const {
  const Bytes need = Need(entry, gpu);
  const auto hint = hints_.find({gpu.index, entry.request.model});
  const Bytes target = hint == hints_.end() ? need : need + hint->second.extra;
  Bytes room = gpu.Free();
  if (room >= target) return true;
  std::vector<EvictionCandidate> chosen;
  for (const EvictionCandidate& candidate : EvictionOrder(entry, gpu)) {
    chosen.push_back(candidate);
    room += candidate.bytes;
    if (room >= target) break;
  }
  if (room < target) {
    // With nothing else on the GPU neither fragments nor an earlier NoFit count: the worker will tell.
    const bool has_model = gpu.Find(entry.request.model) != nullptr;
    const bool alone = gpu.in_flight == 0 && chosen.size() + (has_model ? 1 : 0) == gpu.residents.size();
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

bool SwapScheduler::CanEverFit(const std::string& name, const Gpu& gpu) const {
  if (gpu.worker == WorkerState::kUnfit) return false;
  const auto hint = hints_.find({gpu.index, name});
  if (hint != hints_.end() && hint->second.impossible) return false;
  const Model& model = models_.at(name);
  return model.weights + model.activation <= gpu.memory;
}

bool SwapScheduler::CanEverFit(const std::string& model) const {
  const auto& gpus = gpus_.gpus();
  return std::any_of(gpus.begin(), gpus.end(),
                     [&](const auto& gpu) { return CanEverFit(model, gpu.second); });
}

GpuOption SwapScheduler::OptionFor(const Entry& entry, const Gpu& gpu, Time now) const {
  const bool has_model = gpu.Find(entry.request.model) != nullptr;
  const bool has_slot = HasSlot(entry, gpu);
  return {.gpu = gpu.index,
          .has_model = has_model,
          .has_slot = has_slot,
          .fits = has_slot && PlanVictims(entry, gpu, nullptr),
          .in_flight = gpu.in_flight,
          .free = gpu.Free(),
          .backlog = std::max(Duration::zero(), gpu.busy_until - now),
          .load = has_model ? Duration::zero() : costs_.LoadTime(models_.at(entry.request.model).weights)};
}

GpuChoice SwapScheduler::Choose(const Entry& entry, Time now) const {
  std::vector<GpuOption> options;
  options.reserve(gpus_.gpus().size());
  for (const auto& [index, gpu] : gpus_.gpus()) {
    if (gpu.worker != WorkerState::kReady || !CanEverFit(entry.request.model, gpu)) continue;
    options.push_back(OptionFor(entry, gpu, now));
    const GpuOption& option = options.back();
    if (index == entry.hold && option.has_slot && option.fits) return {GpuVerdict::kRun, index};
  }
  const GpuChoice choice = policies_.gpu(options);
  if (choice.verdict == GpuVerdict::kRun) {
    TROUPE_CHECK(std::any_of(options.begin(), options.end(),
                             [&](const GpuOption& o) { return o.gpu == choice.gpu && o.has_slot && o.fits; }),
                 "the gpu policy chose a GPU that cannot take the request");
  }
  return choice;
}

Dispatch SwapScheduler::MakeDispatch(Entry& entry, GpuIndex index, Time now) {
  const std::string& name = entry.request.model;
  const Model& model = models_.at(name);
  Dispatch dispatch;
  dispatch.request = entry.request.id;
  dispatch.model = name;
  dispatch.gpu = index;
  TROUPE_CHECK(PlanVictims(entry, gpus_.at(index), &dispatch.victims), "a chosen GPU has no room");
  const bool has_model = gpus_.at(index).Find(name) != nullptr;
  entry.hit = has_model && gpus_.at(index).Find(name)->state != ResidentState::kLoading;
  entry.source = has_model ? SwapSource::kResident : SwapSource::kHost;
  for (const std::string& victim : dispatch.victims) gpus_.BeginEvict(index, victim);
  counts_.evictions += dispatch.victims.size();
  if (Need(entry, gpus_.at(index)) > gpus_.at(index).Free()) gpus_.ForgetOverhead(index);
  Duration work = costs_.RunTime(name);
  if (!has_model) {
    gpus_.BeginLoad(index, name, model.weights, now);
    work += costs_.LoadTime(model.weights);
    ++counts_.swaps;
  } else {
    counts_.hits += entry.hit ? 1 : 0;
  }
  gpus_.Pin(index, name, model.activation, work, now);
  entry.pinned = true;
  entry.activation = model.activation;
  entry.gpu = index;
  entry.passed = 0;
  entry.queued = now - entry.arrival;
  counts_.retried += entry.attempts > 0 ? 1 : 0;
  ++entry.attempts;
  Release(entry);
  queue_.Remove(name, entry.key);
  pipelines_[index].push_back(entry.request.id);
  dispatch.source = entry.source;
  dispatch.attempt = entry.attempts;
  dispatch.queued = entry.queued;
  dispatch.expiry = entry.request.expiry;
  return dispatch;
}

std::vector<Dispatch> SwapScheduler::Decide(Time now) {
  std::vector<Dispatch> dispatches;
  std::vector<Entry*> left;  // more urgent than the one at hand, and not to be placed now
  auto head = queue_.heads().begin();
  while (head != queue_.heads().end() && AnySlot()) {
    const OrderingKey key = head->key;
    if (!models_.at(head->model).in_region) {
      ++head;
      continue;
    }
    Entry& entry = requests_.at(queue_.Find(head->model)->begin()->second);
    const GpuChoice choice = Choose(entry, now);
    if (choice.verdict == GpuVerdict::kRun) {
      dispatches.push_back(MakeDispatch(entry, choice.gpu, now));
      NotePassed(left);
    } else {
      left.push_back(&entry);
      if (entry.suspect && entry.hold == kNoGpu) HoldFor(entry);
    }
    head = queue_.heads().upper_bound({key, {}});
  }
  return dispatches;
}

void SwapScheduler::NotePassed(const std::vector<Entry*>& passed) {
  for (Entry* entry : passed) {
    if (++entry->passed > limits_.max_passed && entry->hold == kNoGpu) HoldFor(*entry);
  }
}

// Keeps a GPU for a request: one that has its model before others, the one that will be empty first. Without
// a GPU that nobody holds the request keeps its place in the queue, and tries again when it is passed again.
void SwapScheduler::HoldFor(Entry& entry) {
  const Gpu* best = nullptr;
  const auto rank = [&](const Gpu& gpu) {
    return std::tuple(gpu.Find(entry.request.model) == nullptr, gpu.in_flight, gpu.busy_until, gpu.index);
  };
  for (const auto& [index, gpu] : gpus_.gpus()) {
    if (gpu.worker != WorkerState::kReady || holds_.contains(index) || !CanEverFit(entry.request.model, gpu))
      continue;
    if (best == nullptr || rank(gpu) < rank(*best)) best = &gpu;
  }
  if (best == nullptr) return;
  holds_.emplace(best->index, entry.request.id);
  entry.hold = best->index;
}

void SwapScheduler::Release(Entry& entry) {
  if (entry.hold == kNoGpu) return;
  holds_.erase(entry.hold);
  entry.hold = kNoGpu;
}

}  // namespace troupe::node

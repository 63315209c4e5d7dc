// The waiting requests, and which of them a decision looks at: not those that wait for a certain GPU and
// would go on doing so whatever else became free. So a decision does not scan the queue.
#include <utility>

#include "base/check.hpp"
#include "node/swap_scheduler.hpp"

namespace troupe::node {

void SwapScheduler::Enqueue(Entry& entry) {
  queue_.Add(entry);
  Activate(entry.model);
  if (!locality_) return;
  locality_->Add(entry.key);
  waiting_.emplace(entry.key, &entry);
}

void SwapScheduler::Dequeue(const Entry& entry) {
  queue_.Remove(entry);
  Activate(entry.model);
  if (!locality_) return;
  locality_->Remove(entry.key);
  waiting_.erase(entry.key);
}

void SwapScheduler::Activate(ModelId id) {
  if (locality_ || queue_.Find(id) == nullptr) return;
  Model& model = models_[id];
  model.parked = kNoGpu;
  if (model.in_region) queue_.LookAt(id);
}

void SwapScheduler::ActivateAll() {
  for (const ModelId model : queue_.waiting()) Activate(model);
}

// What a GPU with a place could run at once, whichever GPU it was waiting for.
void SwapScheduler::ActivateResidents(const Gpu& gpu) {
  if (queue_.waiting().size() > gpu.residents.size()) {
    for (const auto& [model, resident] : gpu.residents) Activate(model);
    return;
  }
  for (const ModelId model : queue_.waiting()) {
    if (gpu.residents.contains(model)) Activate(model);
  }
}

void SwapScheduler::Park(ModelId model, GpuIndex gpu) {
  queue_.LookAway(model);
  models_[model].parked = gpu;
  parked_[gpu].push_back(model);
}

void SwapScheduler::Wake(GpuIndex gpu) {
  if (parked_[gpu].empty()) return;
  for (const ModelId model : std::exchange(parked_[gpu], {})) {
    if (models_[model].parked == gpu) Activate(model);
  }
}

void SwapScheduler::CheckHeads() const {
  if (locality_) return;
  std::size_t active = 0;
  for (const ModelId id : queue_.waiting()) {
    const Model& model = models_[id];
    const bool looked_at = queue_.heads().contains({queue_.Find(id)->begin()->first, id});
    active += looked_at ? 1 : 0;
    TROUPE_CHECK(looked_at == queue_.LookedAt(id) && looked_at == (model.in_region && model.parked == kNoGpu),
                 "a waiting model was forgotten");
    if (model.parked == kNoGpu) continue;
    const Gpu& gpu = gpus_.at(model.parked);
    TROUPE_CHECK(gpu.in_flight > 0, "a model waits for a GPU that has nothing to do");
  }
  TROUPE_CHECK(active == queue_.heads().size(), "a model is looked at that does not wait");
}

}  // namespace troupe::node

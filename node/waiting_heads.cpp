// The waiting requests, and which of them a decision looks at: not those that wait for a certain GPU and
// would go on doing so whatever else became free. So a decision does not scan the queue.
#include <utility>

#include "base/check.hpp"
#include "node/swap_scheduler.hpp"

namespace troupe::node {

void SwapScheduler::Enqueue(Entry& entry) {
  if (late_) late_->Add(entry.key, entry.latest, &entry);
  queue_.Add(entry);
  Activate(entry.model);
  if (!locality_) return;
  locality_->Add(entry.key);
  waiting_.emplace(entry.key, &entry);
}

void SwapScheduler::Dequeue(const Entry& entry) {
  if (late_) late_->Remove(entry.key, entry.latest);
  queue_.Remove(entry);
  Activate(entry.model);
  if (!locality_) return;
  locality_->Remove(entry.key);
  waiting_.erase(entry.key);
}

void SwapScheduler::Rekey(Entry& entry, const OrderingKey& key) {
  Dequeue(entry);
  entry.key = key;
  Enqueue(entry);
}

void SwapScheduler::YieldLate(Time now) {
  if (!late_) return;
  while (const auto entry = late_->NextLate(now)) Rekey(**entry, LateKey((*entry)->key));
}

// A request was dispatched, and is in the queue no more.
void SwapScheduler::GiveTurn(const Entry& gone) {
  if (!late_) return;
  const auto next = late_->Gone(gone.key);
  if (!next) return;
  Entry& entry = **next;
  OrderingKey key = entry.key;
  key.place = {};
  entry.latest = Time::max();
  Rekey(entry, key);
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
  std::size_t late = 0;
  for (const ModelId id : queue_.waiting())
    for (const auto& [key, entry] : *queue_.Find(id)) late += IsLate(key) ? 1 : 0;
  TROUPE_CHECK(!late_ || late == late_->late(), "late requests are counted wrong");
  if (locality_) return;
  std::size_t active = 0;
  for (const ModelId id : queue_.waiting()) {
    const Model& model = models_[id];
    const bool looked_at = queue_.LookedAt(id);
    active += looked_at ? 1 : 0;
    TROUPE_CHECK(looked_at == (model.in_region && model.parked == kNoGpu), "a waiting model was forgotten");
    if (model.parked == kNoGpu) continue;
    const Gpu& gpu = gpus_.at(model.parked);
    TROUPE_CHECK(gpu.in_flight > 0, "a model waits for a GPU that has nothing to do");
  }
  TROUPE_CHECK(active == queue_.looked_at(), "a model is looked at that does not wait");
  queue_.Check();
}

}  // namespace troupe::node

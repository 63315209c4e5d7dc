// The waiting requests, and which of them a decision looks at: not those that wait for a certain GPU and
// would go on doing so whatever else became free. So a decision does not scan the queue.
#include "base/check.hpp"
#include "node/swap_scheduler.hpp"

namespace troupe::node {

void SwapScheduler::Enqueue(const Entry& entry) {
  LeaveHeads(entry.request.model);
  queue_.Add(entry.request.model, entry.key, entry.request.id);
  Activate(entry.request.model);
  if (!locality_) return;
  locality_->Add(entry.key);
  waiting_.emplace(entry.key, entry.request.id);
}

void SwapScheduler::Dequeue(const Entry& entry) {
  LeaveHeads(entry.request.model);
  queue_.Remove(entry.request.model, entry.key);
  Activate(entry.request.model);
  if (!locality_) return;
  locality_->Remove(entry.key);
  waiting_.erase(entry.key);
}

void SwapScheduler::LeaveHeads(const std::string& model) {
  const auto* waiting = queue_.Find(model);
  if (waiting == nullptr) return;
  heads_.erase({waiting->begin()->first, {}});
  fresh_.erase({waiting->begin()->first, {}});
}

void SwapScheduler::Activate(const std::string& name) {
  const auto* waiting = locality_ ? nullptr : queue_.Find(name);
  if (waiting == nullptr) return;
  Model& model = models_.at(name);
  model.parked = kNoGpu;
  if (!model.in_region) return;
  heads_.insert({waiting->begin()->first, name});
  fresh_.insert({waiting->begin()->first, name});
}

void SwapScheduler::ActivateAll() {
  for (const auto& head : queue_.heads()) Activate(head.model);
}

// What a GPU with a place could run at once, whichever GPU it was waiting for.
void SwapScheduler::ActivateResidents(const Gpu& gpu) {
  if (queue_.heads().size() > gpu.residents.size()) {
    for (const auto& [model, resident] : gpu.residents) Activate(model);
    return;
  }
  for (const auto& head : queue_.heads()) {
    if (gpu.residents.contains(head.model)) Activate(head.model);
  }
}

void SwapScheduler::Park(const std::string& model, GpuIndex gpu) {
  LeaveHeads(model);
  models_.at(model).parked = gpu;
  parked_[gpu].push_back(model);
}

void SwapScheduler::Wake(GpuIndex gpu) {
  const auto it = parked_.find(gpu);
  if (it == parked_.end()) return;
  for (const std::string& name : std::exchange(it->second, {})) {
    const auto model = models_.find(name);
    if (model != models_.end() && model->second.parked == gpu) Activate(name);
  }
}

void SwapScheduler::CheckHeads() const {
  if (locality_) return;
  std::size_t active = 0;
  for (const auto& head : queue_.heads()) {
    const Model& model = models_.at(head.model);
    const bool looked_at = heads_.contains(head);
    active += looked_at ? 1 : 0;
    TROUPE_CHECK(looked_at == (model.in_region && model.parked == kNoGpu), "a waiting model was forgotten");
    if (model.parked == kNoGpu) continue;
    const Gpu& gpu = gpus_.at(model.parked);
    TROUPE_CHECK(gpu.in_flight > 0, "a model waits for a GPU that has nothing to do");
  }
  TROUPE_CHECK(active == heads_.size(), "a model is looked at that does not wait");
}

}  // namespace troupe::node

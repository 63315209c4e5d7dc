#include "node/scheduling/waiting_requests.hpp"

#include <utility>

#include "base/check.hpp"

namespace troupe::node {

WaitingRequests::WaitingRequests(SchedulerTables& tables) : tables_(tables) {
  if (tables_.rules.by_gpu) locality_ = MakeLocalityQueue(*tables_.rules.policies.gpu.locality);
}

void WaitingRequests::Enqueue(RequestEntry& entry) {
  if (tables_.requests.late) tables_.requests.late->Add(entry.key, entry.latest, &entry);
  tables_.requests.queue.Add(entry);
  tables_.requests.own_places_wanted += entry.request.own_places ? 1 : 0;
  Activate(entry.model);
  if (entry.request.named != kNoGpu) {
    named_.emplace(entry.key, &entry);
    return;
  }
  if (!locality_) return;
  locality_->Add(entry.key);
  in_order_.emplace(entry.key, &entry);
}

void WaitingRequests::Dequeue(const RequestEntry& entry) {
  if (tables_.requests.late) tables_.requests.late->Remove(entry.key, entry.latest);
  tables_.requests.queue.Remove(entry);
  tables_.requests.own_places_wanted -= entry.request.own_places ? 1 : 0;
  Activate(entry.model);
  if (named_.erase(entry.key) > 0 || !locality_) return;
  locality_->Remove(entry.key);
  in_order_.erase(entry.key);
}

void WaitingRequests::Rekey(RequestEntry& entry, const OrderingKey& key) {
  Dequeue(entry);
  entry.key = key;
  Enqueue(entry);
}

void WaitingRequests::ForgetName(RequestEntry& entry) {
  Dequeue(entry);
  entry.request.named = kNoGpu;
  Enqueue(entry);
}

void WaitingRequests::YieldLate(Time now) {
  if (!tables_.requests.late) return;
  while (const auto entry = tables_.requests.late->NextLate(now)) Rekey(**entry, LateKey((*entry)->key));
}

void WaitingRequests::GiveTurn(const RequestEntry& gone) {
  if (!tables_.requests.late) return;
  const auto next = tables_.requests.late->Gone(gone.key);
  if (!next) return;
  RequestEntry& entry = **next;
  OrderingKey key = entry.key;
  key.place = {};
  entry.latest = Time::max();
  Rekey(entry, key);
}

void WaitingRequests::Activate(ModelId id) {
  if (locality_ || tables_.requests.queue.Find(id) == nullptr) return;
  ModelEntry& model = tables_.models[id];
  model.parked = kNoGpu;
  if (model.in_region) tables_.requests.queue.LookAt(id);
}

void WaitingRequests::ActivateAll() {
  for (const ModelId model : tables_.requests.queue.waiting()) Activate(model);
}

void WaitingRequests::ActivateResidents(const Gpu& gpu) {
  if (tables_.requests.queue.waiting().size() > gpu.residents.size()) {
    for (const auto& [model, resident] : gpu.residents) Activate(model);
    return;
  }
  for (const ModelId model : tables_.requests.queue.waiting()) {
    if (gpu.residents.contains(model)) Activate(model);
  }
}

void WaitingRequests::Park(ModelId model, GpuIndex gpu) {
  tables_.requests.queue.LookAway(model);
  tables_.models[model].parked = gpu;
  parked_[gpu].push_back(model);
}

void WaitingRequests::Wake(GpuIndex gpu) {
  if (parked_[gpu].empty()) return;
  for (const ModelId model : std::exchange(parked_[gpu], {})) {
    if (tables_.models[model].parked == gpu) Activate(model);
  }
}

void WaitingRequests::Check() const {
  std::size_t late = 0;
  for (const ModelId id : tables_.requests.queue.waiting())
    for (const auto& [key, entry] : *tables_.requests.queue.Find(id)) late += IsLate(key) ? 1 : 0;
  TROUPE_CHECK(!tables_.requests.late || late == tables_.requests.late->late(),
               "late requests are counted wrong");
  if (locality_) return;
  std::size_t active = 0;
  for (const ModelId id : tables_.requests.queue.waiting()) {
    const ModelEntry& model = tables_.models[id];
    const bool looked_at = tables_.requests.queue.LookedAt(id);
    active += looked_at ? 1 : 0;
    TROUPE_CHECK(looked_at == (model.in_region && model.parked == kNoGpu), "a waiting model was forgotten");
    if (model.parked == kNoGpu) continue;
    const Gpu& gpu = tables_.gpus.at(model.parked);
    TROUPE_CHECK(gpu.in_flight > 0, "a model waits for a GPU that has nothing to do");
  }
  TROUPE_CHECK(active == tables_.requests.queue.looked_at(), "a model is looked at that does not wait");
  tables_.requests.queue.Check();
}

}  // namespace troupe::node

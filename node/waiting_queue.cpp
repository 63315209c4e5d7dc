#include "node/waiting_queue.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace troupe::node {

void WaitingQueue::Add(RequestEntry& entry) {
  if (models_.size() <= entry.model) models_.resize(entry.model + 1);
  Model& model = models_[entry.model];
  if (model.requests.empty()) {
    model.slot = waiting_.size();
    waiting_.push_back(entry.model);
  } else if (entry.key < model.requests.begin()->first) {
    LookAway(entry.model);
  }
  TROUPE_CHECK(model.requests.emplace(entry.key, &entry).second, "two waiting requests share one key");
  ++size_;
}

void WaitingQueue::Remove(const RequestEntry& entry) {
  TROUPE_CHECK(Find(entry.model) != nullptr, "a request to remove does not wait");
  Model& model = models_[entry.model];
  if (entry.key == model.requests.begin()->first) LookAway(entry.model);
  TROUPE_CHECK(model.requests.erase(entry.key) == 1, "a request to remove does not wait");
  --size_;
  if (!model.requests.empty()) return;
  models_[waiting_.back()].slot = model.slot;
  waiting_[model.slot] = waiting_.back();
  waiting_.pop_back();
}

std::vector<ModelId> WaitingQueue::InOrder() const {
  std::vector<Head> heads;
  heads.reserve(waiting_.size());
  for (const ModelId model : waiting_) heads.push_back(HeadOf(models_[model], model));
  std::ranges::sort(heads, {}, &Head::key);
  std::vector<ModelId> models;
  models.reserve(heads.size());
  for (const Head& head : heads) models.push_back(head.model);
  return models;
}

void WaitingQueue::LookAt(ModelId id) {
  Model& model = models_[id];
  if (!std::exchange(model.looked_at, true)) heads_.insert(HeadOf(model, id));
  if (!std::exchange(model.fresh, true)) fresh_.insert(HeadOf(model, id));
}

void WaitingQueue::LookAway(ModelId id) {
  Model& model = models_[id];
  if (std::exchange(model.looked_at, false)) heads_.erase(HeadOf(model, id));
  if (std::exchange(model.fresh, false)) fresh_.erase(HeadOf(model, id));
}

void WaitingQueue::AllSeen() {
  for (const Head& head : fresh_) models_[head.model].fresh = false;
  fresh_.clear();
}

}  // namespace troupe::node

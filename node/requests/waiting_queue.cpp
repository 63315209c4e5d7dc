#include "node/requests/waiting_queue.hpp"

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
  if (entry.key == model.requests.begin()->first) {
    LookAway(entry.model);
    model.requests.erase(model.requests.begin());
  } else {
    TROUPE_CHECK(model.requests.erase(entry.key) == 1, "a request to remove does not wait");
  }
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

namespace {
// Of a heap the first one is the most urgent.
constexpr auto kLater = [](const WaitingQueue::Head& a, const WaitingQueue::Head& b) { return b < a; };
}  // namespace

void WaitingQueue::LookAt(ModelId id) {
  Model& model = models_[id];
  if (!std::exchange(model.looked_at, true)) {
    model.head = model.requests.begin()->first;
    heads_.insert(id);
  }
  if (std::exchange(model.fresh, true)) return;
  fresh_.push_back(HeadOf(model, id));
  std::ranges::push_heap(fresh_, kLater);
}

void WaitingQueue::LookAway(ModelId id) {
  Model& model = models_[id];
  if (std::exchange(model.looked_at, false)) heads_.erase(heads_.find(id));
  model.fresh = false;
}

std::optional<WaitingQueue::Head> WaitingQueue::NextHead(const std::optional<Head>& behind) const {
  const auto head = behind ? heads_.upper_bound(behind->key) : heads_.begin();
  return head == heads_.end() ? std::nullopt : std::optional(Head{models_[*head].head, *head});
}

std::optional<WaitingQueue::Head> WaitingQueue::NextFresh(const std::optional<Head>& behind) {
  while (!fresh_.empty()) {
    std::ranges::pop_heap(fresh_, kLater);
    const Head head = fresh_.back();
    fresh_.pop_back();
    Model& model = models_[head.model];
    if (!model.fresh || model.requests.begin()->first != head.key) continue;
    model.fresh = false;
    if (!behind || *behind < head) return head;
  }
  return std::nullopt;
}

void WaitingQueue::AllSeen() {
  for (const Head& head : fresh_) models_[head.model].fresh = false;
  fresh_.clear();
}

void WaitingQueue::Check() const {
  std::optional<Head> last;
  while (const auto head = NextHead(last)) {
    TROUPE_CHECK(models_[head->model].looked_at && head->key == Find(head->model)->begin()->first,
                 "another request is the head of its model");
    TROUPE_CHECK(!last || *last < *head, "heads are out of order");
    last = head;
  }
}

}  // namespace troupe::node

// ELIGIBLE QUEUE: the waiting requests of each model, in order; and for each node the first requests of the
// models that it holds, so that the choice looks at no request that the node could not take.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "cluster/credit_table.hpp"
#include "cluster/requests/request_entry.hpp"
#include "scheduling/model_queue.hpp"

namespace troupe::cluster {

class EligibleQueue {
 public:
  using Head = ModelQueue<std::uint64_t>::Head;

  // `credits` outlives the queue, and says which nodes hold a model.
  explicit EligibleQueue(const CreditTable& credits) : credits_(credits) {}

  void Add(const RequestEntry& entry) {
    Unindex(entry.request.model);
    queue_.Add(entry.request.model, entry.key, entry.request.sequence);
    Index(entry.request.model);
  }
  void Remove(const RequestEntry& entry) {
    Unindex(entry.request.model);
    queue_.Remove(entry.request.model, entry.key);
    Index(entry.request.model);
  }
  // Before and after a change of the model's holders.
  void Unindex(const std::string& model) {
    const auto* waiting = queue_.Find(model);
    const auto* holders = credits_.Holders(model);
    if (waiting == nullptr || holders == nullptr) return;
    for (const std::string& node : *holders) eligible_[node].erase(Head{waiting->begin()->first, {}});
  }
  void Index(const std::string& model) {
    const auto* waiting = queue_.Find(model);
    const auto* holders = credits_.Holders(model);
    if (waiting == nullptr || holders == nullptr) return;
    for (const std::string& node : *holders) eligible_[node].insert(Head{waiting->begin()->first, model});
  }
  void Forget(const std::string& node) { eligible_.erase(node); }

  // Null: none.
  [[nodiscard]] const std::set<Head>* HeadsFor(const std::string& node) const {
    const auto heads = eligible_.find(node);
    return heads == eligible_.end() ? nullptr : &heads->second;
  }
  // The model's requests in order; null: none waits.
  [[nodiscard]] const ModelQueue<std::uint64_t>::Requests* Find(const std::string& model) const {
    return queue_.Find(model);
  }
  // The first request of the model, which has one.
  [[nodiscard]] std::uint64_t FirstOf(const std::string& model) const {
    return queue_.Find(model)->begin()->second;
  }
  [[nodiscard]] bool empty() const { return queue_.empty(); }
  [[nodiscard]] std::size_t size() const { return queue_.size(); }

 private:
  const CreditTable& credits_;
  ModelQueue<std::uint64_t> queue_;
  std::map<std::string, std::set<Head>> eligible_;  // by node
};

}  // namespace troupe::cluster

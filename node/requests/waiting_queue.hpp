// WAITING QUEUE: the waiting requests by model, the first of each model in constant time; and the models that
// a decision looks at, in the order of their first requests. Owned by the swap scheduler; requests are its
// entries, which stay where they are as long as they wait.
//
//   a waiting model:  looked at <-> parked (by the scheduler, which says when it is looked at again)
//
// A model that was just looked up again, or whose first request has changed, is fresh until a decision has
// seen it.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "node/scheduling/scheduler_entries.hpp"

namespace troupe::node {

class WaitingQueue {
 public:
  using Requests = absl::btree_map<OrderingKey, RequestEntry*>;
  struct Head {
    OrderingKey key{};
    ModelId model = kNoModel;
    bool operator<(const Head& other) const { return key < other.key; }
  };
  WaitingQueue() = default;
  WaitingQueue(const WaitingQueue&) = delete;
  WaitingQueue& operator=(const WaitingQueue&) = delete;

  // By its own key, which is unique in the queue. What changes the first request of a model takes the model
  // off the heads.
  void Add(RequestEntry& entry);
  void Remove(const RequestEntry& entry);

  // The requests of one model in order; null when none waits.
  [[nodiscard]] const Requests* Find(ModelId model) const {
    return model < models_.size() && !models_[model].requests.empty() ? &models_[model].requests : nullptr;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  // Models with waiting requests: in no order, and by their first requests, the most urgent one first.
  [[nodiscard]] const std::vector<ModelId>& waiting() const { return waiting_; }
  [[nodiscard]] std::vector<ModelId> InOrder() const;

  // A model with waiting requests is looked at, and fresh; or not at all.
  void LookAt(ModelId model);
  void LookAway(ModelId model);
  [[nodiscard]] bool LookedAt(ModelId model) const { return models_[model].looked_at; }
  [[nodiscard]] std::size_t looked_at() const { return heads_.size(); }
  // The key of the first model that is looked at; there must be one.
  [[nodiscard]] const OrderingKey& FirstKey() const { return models_[*heads_.begin()].head; }
  // The first of them, or the first behind that one.
  [[nodiscard]] std::optional<Head> NextHead(const std::optional<Head>& behind) const;
  // The same of the fresh ones, which are seen by that, with those before it.
  [[nodiscard]] std::optional<Head> NextFresh(const std::optional<Head>& behind);
  void AllSeen();
  // Ends the process when the heads are not the first requests of their models, in order.
  void Check() const;

 private:
  struct Model {
    OrderingKey head{};  // while it is looked at: of its first request
    Requests requests{};
    std::size_t slot = 0;  // in waiting_
    bool looked_at = false;
    bool fresh = false;  // then its head is in fresh_
  };
  // Numbers, many of which fit in a node; their keys lie with the models.
  struct Earlier {
    using is_transparent = void;
    bool operator()(ModelId a, ModelId b) const { return (*models)[a].head < (*models)[b].head; }
    bool operator()(ModelId a, const OrderingKey& b) const { return (*models)[a].head < b; }
    bool operator()(const OrderingKey& a, ModelId b) const { return a < (*models)[b].head; }
    const std::vector<Model>* models;
  };
  [[nodiscard]] static Head HeadOf(const Model& model, ModelId id) {
    return {model.requests.begin()->first, id};
  }

  std::vector<Model> models_;
  std::vector<ModelId> waiting_;
  absl::btree_set<ModelId, Earlier> heads_{Earlier{&models_}};  // that are looked at
  std::vector<Head> fresh_;  // of them, as a heap; also such as are fresh no more, or have another head
  std::size_t size_ = 0;
};

}  // namespace troupe::node

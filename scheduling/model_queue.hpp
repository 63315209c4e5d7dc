// Waiting requests by model: the first of each model in constant time, the models in the order of their first
// requests in logarithmic time. So neither a router nor a node controller scans its queue to decide.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/check.hpp"
#include "scheduling/ordering_policy.hpp"

namespace troupe {

// `Id` names a request to its owner; a key is unique in the queue.
template <class Id>
class ModelQueue {
 public:
  using Requests = std::map<OrderingKey, Id>;
  struct Head {
    OrderingKey key;
    std::string model;
    bool operator<(const Head& other) const { return key < other.key; }
  };

  void Add(const std::string& model, const OrderingKey& key, const Id& id) {
    Requests& requests = models_[model];
    if (!requests.empty()) heads_.erase(Head{requests.begin()->first, {}});
    TROUPE_CHECK(requests.emplace(key, id).second, "two waiting requests share one ordering key");
    heads_.insert(Head{requests.begin()->first, model});
    ++size_;
  }

  void Remove(const std::string& model, const OrderingKey& key) {
    const auto it = models_.find(model);
    TROUPE_CHECK(it != models_.end(), "a request to remove does not wait");
    heads_.erase(Head{it->second.begin()->first, {}});
    TROUPE_CHECK(it->second.erase(key) == 1, "a request to remove does not wait");
    --size_;
    if (it->second.empty()) {
      models_.erase(it);
    } else {
      heads_.insert(Head{it->second.begin()->first, model});
    }
  }

  // The requests of one model in order; null when none waits.
  [[nodiscard]] const Requests* Find(const std::string& model) const {
    const auto it = models_.find(model);
    return it == models_.end() ? nullptr : &it->second;
  }
  // The first request of each model, most urgent first.
  [[nodiscard]] const std::set<Head>& heads() const { return heads_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  absl::flat_hash_map<std::string, Requests> models_;  // never walked: its order means nothing
  std::set<Head> heads_;
  std::size_t size_ = 0;
};

}  // namespace troupe

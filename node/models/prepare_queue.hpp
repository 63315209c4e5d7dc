// PREPARE QUEUE: the models whose plans one worker is to make ahead of their first request. It makes one at a
// time: so a plan that a request waits for is never behind more than one of them, and few host copies are
// kept for it. One queue for each runtime.
#pragma once

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "node/names.hpp"

namespace troupe::node {

class PrepareQueue {
 public:
  // `adopting`: a caller waits for the model's adoption; such models go before all others.
  void Push(const ModelNumber& copy, bool adopting) {
    auto& queue = adopting ? adopting_ : others_;
    if (std::find(queue.begin(), queue.end(), copy) == queue.end()) queue.push_back(copy);
  }
  // The next to order, until Done; none when one is under way, or no model is left.
  [[nodiscard]] ModelNumber Next() {
    auto& queue = adopting_.empty() ? others_ : adopting_;
    if (busy_ || queue.empty()) return {};
    busy_ = true;
    auto copy = std::move(queue.front());
    queue.pop_front();
    return copy;
  }
  void Done() { busy_ = false; }
  // The worker is gone. Gives back the models that were being adopted and had not been ordered.
  [[nodiscard]] std::vector<ModelNumber> Clear() {
    std::vector<ModelNumber> adopting(adopting_.begin(), adopting_.end());
    *this = {};
    return adopting;
  }

 private:
  std::deque<ModelNumber> adopting_;
  std::deque<ModelNumber> others_;
  bool busy_ = false;
};

}  // namespace troupe::node

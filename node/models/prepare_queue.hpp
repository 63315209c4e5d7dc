// PREPARE QUEUE: the plans that one worker is to make ahead of the first request that needs them. It makes one
// at a time: so a plan that a request waits for is never behind more than one of them, and few host copies are
// kept for it. One queue for each runtime.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "node/names.hpp"

namespace troupe::node {

class PrepareQueue {
 public:
  struct Plan {
    ModelNumber copy{};
    std::uint32_t rows = 1;
    bool operator==(const Plan&) const = default;
  };
  // `adopting`: a caller waits for the model's adoption; such models go before all others. Plans for batches go
  // last.
  void Push(const ModelNumber& copy, bool adopting) { Add(adopting ? adopting_ : others_, {copy, 1}); }
  void PushBatch(const ModelNumber& copy, std::uint32_t rows) { Add(batches_, {copy, rows}); }
  // The next to order, until Done; none when one is under way, or no plan is left.
  [[nodiscard]] std::optional<Plan> Next() {
    auto& queue = !adopting_.empty() ? adopting_ : !others_.empty() ? others_ : batches_;
    if (busy_ || queue.empty()) return std::nullopt;
    busy_ = true;
    auto plan = std::move(queue.front());
    queue.pop_front();
    return plan;
  }
  void Done() { busy_ = false; }
  // The model is given up. A plan that was ordered comes to its end.
  void Remove(const ModelNumber& copy) {
    for (auto* queue : {&adopting_, &others_, &batches_})
      std::erase_if(*queue, [&](const Plan& plan) { return plan.copy == copy; });
  }
  // The worker is gone. Gives back the models that were being adopted and had not been ordered.
  [[nodiscard]] std::vector<ModelNumber> Clear() {
    std::vector<ModelNumber> adopting;
    for (auto& plan : adopting_) adopting.push_back(std::move(plan.copy));
    *this = {};
    return adopting;
  }

 private:
  static void Add(std::deque<Plan>& queue, Plan plan) {
    if (std::find(queue.begin(), queue.end(), plan) == queue.end()) queue.push_back(std::move(plan));
  }

  std::deque<Plan> adopting_;
  std::deque<Plan> others_;
  std::deque<Plan> batches_;
  bool busy_ = false;
};

}  // namespace troupe::node

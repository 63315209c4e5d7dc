// TRIAL QUEUE: the models whose cost is still to be measured on this node. Each is tried when it has been
// adopted and the node has nothing else to do, so that a trial never keeps a request waiting for long.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "node/names.hpp"

namespace troupe::node {

class TrialQueue {
 public:
  // A swapped run, a resident one, and one more in case that something came between.
  static constexpr std::uint32_t kMost = 3;

  void Push(const ModelNumber& copy) {
    if (!Waits(copy)) queue_.push_back({copy, 0});
  }
  // The model is not to be tried (any more).
  void Remove(const ModelNumber& copy) {
    std::erase_if(queue_, [&](const auto& trial) { return trial.first == copy; });
  }
  // The first model, for its next trial. It stays in the queue until it has had kMost of them. None while a
  // trial is under way, or when no model waits.
  [[nodiscard]] ModelNumber Begin() {
    if (busy_ || queue_.empty()) return {};
    busy_ = true;
    auto copy = queue_.front().first;
    if (++queue_.front().second == kMost) queue_.pop_front();
    return copy;
  }
  // A trial that did not come from the queue is under way.
  void Occupy() { busy_ = true; }
  void End() { busy_ = false; }
  [[nodiscard]] bool busy() const { return busy_; }
  [[nodiscard]] bool Waits(const ModelNumber& copy) const {
    return std::any_of(queue_.begin(), queue_.end(), [&](const auto& trial) { return trial.first == copy; });
  }

 private:
  std::deque<std::pair<ModelNumber, std::uint32_t>> queue_;
  bool busy_ = false;
};

}  // namespace troupe::node

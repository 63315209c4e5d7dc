// TRIAL QUEUE: the models whose cost is still to be measured on this node. Each is tried when it has been
// adopted and the node has nothing else to do, so that a trial never keeps a request waiting for long.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

namespace troupe::node {

class TrialQueue {
 public:
  // A swapped run, a resident one, and one more in case that something came between.
  static constexpr std::uint32_t kMost = 3;

  void Push(const std::string& digest) {
    if (!Waits(digest)) queue_.push_back({digest, 0});
  }
  // The model is not to be tried (any more).
  void Remove(const std::string& digest) {
    std::erase_if(queue_, [&](const auto& trial) { return trial.first == digest; });
  }
  // The first model, for its next trial. It stays in the queue until it has had kMost of them. Empty while a
  // trial is under way, or when no model waits.
  [[nodiscard]] std::optional<std::string> Begin() {
    if (busy_ || queue_.empty()) return std::nullopt;
    busy_ = true;
    auto digest = queue_.front().first;
    if (++queue_.front().second == kMost) queue_.pop_front();
    return digest;
  }
  // A trial that did not come from the queue is under way.
  void Occupy() { busy_ = true; }
  void End() { busy_ = false; }
  [[nodiscard]] bool busy() const { return busy_; }
  [[nodiscard]] bool Waits(const std::string& digest) const {
    return std::any_of(queue_.begin(), queue_.end(),
                       [&](const auto& trial) { return trial.first == digest; });
  }

 private:
  std::deque<std::pair<std::string, std::uint32_t>> queue_;
  bool busy_ = false;
};

}  // namespace troupe::node

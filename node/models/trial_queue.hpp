// TRIAL QUEUE: the models whose cost is still to be measured on this node, on each kind of its GPUs. Each is tried when it has
// been adopted and the node has nothing else to do, so that a trial never keeps a request waiting for long.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>

#include "node/names.hpp"
#include "scheduling/by_kind.hpp"

namespace troupe::node {

class TrialQueue {
 public:
  // A swapped run, a resident one, and one more in case that something came between.
  static constexpr std::uint32_t kMost = 3;
  struct Trial {
    ModelNumber copy{};
    std::optional<KindId> kind{};  // of the GPU on which it runs; nothing: on any
    bool operator==(const Trial&) const = default;
  };

  void Push(const Trial& trial) {
    const bool waits = std::ranges::any_of(queue_, [&](const Turns& one) { return one.trial == trial; });
    if (!waits) queue_.push_back({trial, 0});
  }
  // It is not to be tried (any more).
  void Remove(const Trial& trial) {
    std::erase_if(queue_, [&](const Turns& one) { return one.trial == trial; });
  }
  // The model is not to be tried on any kind.
  void Remove(const ModelNumber& copy) {
    std::erase_if(queue_, [&](const Turns& one) { return one.trial.copy == copy; });
  }
  // The first one, for its next run. It stays in the queue until it has had kMost of them. None while a trial is under way, or
  // when no model waits.
  [[nodiscard]] std::optional<Trial> Begin() {
    if (busy_ || queue_.empty()) return std::nullopt;
    busy_ = true;
    const Trial trial = queue_.front().trial;
    if (++queue_.front().runs == kMost) queue_.pop_front();
    return trial;
  }
  // A trial that did not come from the queue is under way.
  void Occupy() { busy_ = true; }
  void End() { busy_ = false; }
  [[nodiscard]] bool busy() const { return busy_; }

 private:
  struct Turns {
    Trial trial;
    std::uint32_t runs = 0;  // that have begun
  };
  std::deque<Turns> queue_;
  bool busy_ = false;
};

}  // namespace troupe::node

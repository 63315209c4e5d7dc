// What a watchdog and the accounts see of one engine of a GPU.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <mutex>

#include "gpu/device/device.hpp"

namespace troupe::gpu::cuda {

// Thread-safe.
class Meter {
 public:
  void Began() {
    const std::lock_guard lock(mutex_);
    ++under_way_;
  }
  // Steps or blocks that have ended. Waits for ever when the engine is frozen, as Ended does.
  void Moved(std::uint64_t count) {
    std::unique_lock lock(mutex_);
    thawed_.wait(lock, [this] { return !frozen_; });
    progress_ += count;
  }
  // Time in which operations overlap counts once.
  void Ended(Time begin, Time end) {
    std::unique_lock lock(mutex_);
    thawed_.wait(lock, [this] { return !frozen_; });
    --under_way_;
    busy_ += std::max(end - std::max(begin, counted_until_), Duration(0));
    counted_until_ = std::max(counted_until_, end);
  }
  // A fault: nothing ends any more. `busy` makes even an idle engine look busy.
  void Freeze(bool busy) {
    const std::lock_guard lock(mutex_);
    frozen_ = true;
    pretends_busy_ = busy;
  }
  [[nodiscard]] EngineState state() const {
    const std::lock_guard lock(mutex_);
    return {under_way_ > 0 || pretends_busy_, progress_, busy_};
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable thawed_;
  std::size_t under_way_ = 0;
  std::uint64_t progress_ = 0;
  Duration busy_{};
  Time counted_until_{};
  bool frozen_ = false;
  bool pretends_busy_ = false;
};

}  // namespace troupe::gpu::cuda

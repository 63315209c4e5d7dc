// MEMORY PRESSURE: how much device memory was lacking lately, which tells what will be lacking soon.
#pragma once

#include <algorithm>
#include <utility>

#include "base/units.hpp"

namespace troupe::gpu {

// The most that was lacking at a time, in this window and the one before it. Pure; asked more often than once in a window.
class MemoryPressure {
 public:
  explicit MemoryPressure(Duration window) : window_(window) {}
  void Lacked(Bytes size) { now_ = std::max(now_, size); }
  [[nodiscard]] Bytes Expected(Time now) {
    if (now >= end_) {
      before_ = std::exchange(now_, Bytes(0));
      end_ = now + window_;
    }
    return std::max(before_, now_);
  }

 private:
  Duration window_;
  Time end_{};
  Bytes now_;
  Bytes before_;
};

}  // namespace troupe::gpu

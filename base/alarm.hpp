// ALARM: when its owner wants to be woken. A timer that runs cannot be taken back, so an earlier wish sets one more; a later wish
// is served by the timers that run, because the owner looks again whenever one of them goes off.
#pragma once

#include <cstddef>
#include <set>

#include "base/units.hpp"

namespace troupe {

class Alarm {
 public:
  // Whether the owner has to set a timer for `due`: none that runs goes off by then. Time::max() is never.
  [[nodiscard]] bool Set(Time due) {
    if (due == Time::max() || (!running_.empty() && *running_.begin() <= due)) return false;
    running_.insert(due);
    return true;
  }
  // A timer has gone off, not before its time. The owner sets the alarm anew for what is due next.
  void WentOff(Time now) { running_.erase(running_.begin(), running_.upper_bound(now)); }
  [[nodiscard]] std::size_t timers() const { return running_.size(); }

 private:
  std::set<Time> running_;
};

}  // namespace troupe

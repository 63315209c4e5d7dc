// AGENDA: what is done to a world from outside, and when: by time, then in the order in which it was put
// down.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "base/units.hpp"
#include "sim/world.hpp"

namespace troupe::sim {

class Agenda {
 public:
  explicit Agenda(World& world) : world_(world) {}
  // Never in the past: then it is done next.
  void At(Time when, std::function<void()> what) { todo_.emplace(when, std::move(what)); }
  void In(Duration after, std::function<void()> what) { At(world_.Now() + after, std::move(what)); }
  // Moves the world's time there, and does what is due on the way: also what the world itself puts down
  // meanwhile, so that it goes from one due event to the next.
  void RunTo(Time end) {
    world_.Settle();
    for (;;) {
      const Time own = todo_.empty() ? Time::max() : todo_.begin()->first;
      const Time next = std::min(own, WorldsNext());
      if (next > end) break;
      world_.RunTo(std::max(next, world_.Now()));
      DoDue();
    }
    world_.RunTo(end);
  }
  template <class Condition>
  bool RunUntil(Condition condition, Duration limit) {
    const Time end = world_.Now() + limit;
    while (!condition() && world_.Now() < end) RunTo(std::min(end, world_.Now() + kLook));
    return condition();
  }
  void Clear() { todo_.clear(); }

 private:
  [[nodiscard]] Time WorldsNext() {
    const auto& schedule = world_.scheduler().clock().schedule();
    return schedule.empty() ? Time::max() : Time(schedule.begin()->first.time_since_epoch());
  }
  void DoDue() {
    while (!todo_.empty() && todo_.begin()->first <= world_.Now()) {
      const auto next = todo_.extract(todo_.begin());
      next.mapped()();
      world_.Settle();
    }
  }

  static constexpr Duration kLook = std::chrono::milliseconds(20);
  World& world_;
  std::multimap<Time, std::function<void()>> todo_;
};

}  // namespace troupe::sim

// VIRTUAL TIMER: what is to be done at a time of a virtual system, by code that is not an actor.
#pragma once

#include <caf/actor.hpp>
#include <cstdint>
#include <functional>
#include <map>

#include "base/units.hpp"
#include "sim/virtual_system.hpp"

namespace troupe::sim {

class VirtualTimer {
 public:
  // `system` outlives the timer, or End comes before its end.
  explicit VirtualTimer(VirtualSystem& system) : system_(system) {}
  VirtualTimer(const VirtualTimer&) = delete;
  VirtualTimer& operator=(const VirtualTimer&) = delete;
  ~VirtualTimer() { End(); }

  // Never in the past: then it is done next.
  void At(Time when, std::function<void()> what);
  // What was not due until now is never done.
  void End();

 private:
  caf::actor Spawn();

  VirtualSystem& system_;
  caf::actor actor_;  // null: nothing was asked for yet
  std::map<std::uint64_t, std::function<void()>> open_;
  std::uint64_t next_ = 1;
};

}  // namespace troupe::sim

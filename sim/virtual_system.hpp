// VIRTUAL SYSTEM: a system of actors under virtual time, on CAF's deterministic scheduler. One thread, no
// sleeping: same steps, same trace.
//
// Time only moves in Run and RunTo, from one due event to the next, and in StandStill: one long jump, which
// fires a periodic timer only once.
#pragma once

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <chrono>
#include <memory>

#include "base/units.hpp"

namespace troupe::sim {

class VirtualSystem {
 public:
  VirtualSystem();
  VirtualSystem(const VirtualSystem&) = delete;
  VirtualSystem& operator=(const VirtualSystem&) = delete;
  virtual ~VirtualSystem() = default;

  // Runs everything that can run now, then moves time from one due event to the next, for `span` altogether.
  void Run(Duration span) { RunTo(Now() + span); }
  void RunTo(Time end);
  void Settle();
  // As if the whole process had stood still for `span`: what was due meanwhile comes late, and all at once.
  void StandStill(Duration span);
  [[nodiscard]] Time Now();
  template <class Condition>
  void RunUntil(Condition condition, Duration limit) {
    for (Duration spent{}; !condition() && spent < limit; spent += std::chrono::milliseconds(1))
      Run(std::chrono::milliseconds(1));
  }

  [[nodiscard]] caf::scheduler::test_coordinator& scheduler();
  [[nodiscard]] caf::actor_system& system() { return system_; }

 private:
  std::unique_ptr<caf::actor_system_config> config_;
  caf::actor_system system_;
};

}  // namespace troupe::sim

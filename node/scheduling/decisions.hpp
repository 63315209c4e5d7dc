// DECISIONS: asks the scheduler what to do next after each event that may have changed that, and has every
// part carry out its share, in the order of the Decision.
#pragma once

#include <cstdint>

#include "base/alarm.hpp"
#include "node/events.hpp"

namespace troupe::node {

struct Parts;

class Decisions {
 public:
  explicit Decisions(Parts& parts) : parts_(parts) {}

  void On(const RuntimeLost& event);
  void OnTimer();

  // Carries out what can be decided now.
  void Decide();
  // What an event of the scheduler led to, and then what can be decided now.
  void CarryOut(const Consequences& consequences);

 private:
  void Arm(Time due);

  Parts& parts_;
  Alarm alarm_;
  std::uint64_t rounds_ = 0;  // decisions so far
};

}  // namespace troupe::node

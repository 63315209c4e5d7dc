// Which of the launches that compute at a time the control page tells of.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.hpp"
#include "gpu/worker/control_page.hpp"

namespace troupe::gpu {

// The page has one cell for compute, and a watchdog that sees it stand still ends the worker. So the cell
// shows the busy lane that has stood still for longest: it moves while all lanes move, and stays when one of
// them hangs, whatever the others do. Pure; the main loop's thread.
class ComputeWatch {
 public:
  using LaneState = ControlSnapshot::LaneState;
  // The same lanes in the same order each time.
  [[nodiscard]] LaneState Observe(std::span<const LaneState> lanes, Time now);

 private:
  struct Seen {
    LaneState state;
    Time moved;
  };
  std::vector<Seen> seen_;
};

}  // namespace troupe::gpu

// HOW LONG A RUN TAKES on a part of a GPU's SMs: the model of timed plans, of paced real ones, and of the
// simulator's shared GPU.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/share_ladder.hpp"
#include "base/units.hpp"

namespace troupe {

// A run takes `time` when it has the GPU to itself. On a part of the SMs it takes longer in proportion as that
// part is less than `saturation`, beyond which the model is no faster. Parts are of all SMs, above 0, at most 1.
struct RunCost {
  Duration time = std::chrono::milliseconds(5);
  double saturation = 1;

  // How many times as long as on all SMs.
  [[nodiscard]] double SlownessOn(double part) const { return std::max(saturation / part, 1.0); }
  [[nodiscard]] Duration On(double part) const {
    return part >= saturation ? time : FromSeconds(ToSeconds(time) * saturation / part);
  }
  [[nodiscard]] Duration On(const SmShare& share) const { return On(share.part()); }
  // Of all SMs, what a run on this part of them makes use of.
  [[nodiscard]] double UsedOf(double part) const { return std::min(part, saturation); }
};

}  // namespace troupe

// SERVICE PACE: how fast requests are served, so that a client that is turned away knows when to come again.
#pragma once

#include <algorithm>

#include "base/units.hpp"
#include "scheduling/cost_model.hpp"

namespace troupe::cluster {

class ServicePace {
 public:
  // `busy`: requests waited when this one was served.
  void Served(Time now, bool busy) {
    if (busy) interval_.Observe(std::min<Duration>(now - last_, std::chrono::seconds(1)));
    last_ = now;
  }
  // How long until so many are served, at most `longest`.
  [[nodiscard]] Duration Until(std::size_t requests, Duration longest) const {
    const Duration interval = interval_.Or(std::chrono::milliseconds(10));
    const auto count = static_cast<Duration::rep>(requests);
    return interval > longest / count ? longest : interval * count;
  }

 private:
  RunningEstimate interval_;
  Time last_{};
};

}  // namespace troupe::cluster

// ARRIVAL FORECAST: when something will be asked for next that is asked for at regular intervals, as by a
// timer. It trusts an interval as far as the latest ones have come true; of arrivals that come as they please
// it says nothing. Plain data.
#pragma once

#include "base/units.hpp"

namespace troupe::node {

class ArrivalForecast {
 public:
  void Arrived(Time now);
  // When the next request is expected; Time::max() when that cannot be told.
  [[nodiscard]] Time Due() const;
  // Between the latest two.
  [[nodiscard]] Duration interval() const { return interval_; }
  // How long after Due it still may come.
  [[nodiscard]] Duration Grace() const { return interval_ / kTolerance; }

 private:
  // An interval like the one before it differs from it by less than this part of it. Of two that have nothing
  // to do with each other one in eight does so.
  static constexpr int kTolerance = 16;
  Time last_ = Time::min();
  Duration interval_{};
  double trust_ = 0;  // the share of them that came when expected, the latest ones weighing most
};

}  // namespace troupe::node

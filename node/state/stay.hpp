// STAY: how long a model or a state stays on its GPU, since what it holds could not be written back: a while, and twice as
// long after each failure in a row. Until then others leave for what needs the room. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/units.hpp"

namespace troupe::node {

class Stay {
 public:
  static constexpr Duration kFirst = std::chrono::milliseconds(250), kLongest = std::chrono::seconds(8);

  [[nodiscard]] bool over() const { return until_ == Time::max(); }
  [[nodiscard]] Time until() const { return until_; }  // Time::max(): it is over
  [[nodiscard]] std::uint32_t failures() const { return failures_; }
  // It was not written back, the last `failures` times.
  void Begin(std::uint32_t failures, Time now) {
    failures_ = failures;
    until_ = now + std::min(kLongest, kFirst * (1U << std::min(failures - 1, 8U)));
  }
  // It may be tried again; the failures are remembered.
  void End() { until_ = Time::max(); }

 private:
  std::uint32_t failures_ = 0;
  Time until_ = Time::max();
};

}  // namespace troupe::node

// RUNNING ESTIMATE: a running mean that follows change: each observation moves it by a fifth of the difference,
// the first one sets it.
#pragma once

#include <algorithm>

#include "base/units.hpp"

namespace troupe {

class RunningEstimate {
 public:
  static constexpr double kWeight = 0.2;

  void Observe(Duration value) {
    const Duration::rep sample = std::max<Duration::rep>(value.count(), 0);
    mean_ =
        known_ ? mean_ + static_cast<Duration::rep>(kWeight * static_cast<double>(sample - mean_)) : sample;
    known_ = true;
  }
  [[nodiscard]] bool known() const { return known_; }
  [[nodiscard]] Duration Or(Duration fallback) const { return known_ ? Duration(mean_) : fallback; }

 private:
  Duration::rep mean_ = 0;
  bool known_ = false;
};

}  // namespace troupe

// The cost model that several decisions share: how long a model takes to load and to run, learned from
// outcomes. Owned by one decision object at a time (no locks); grows with the number of models it was told
// of.
#pragma once

#include <string>
#include <unordered_map>

#include "base/units.hpp"

namespace troupe {

// A running mean that follows change: each observation moves it by a fifth of the difference, the first one
// sets it.
class RunningEstimate {
 public:
  void Observe(Duration value);
  [[nodiscard]] bool known() const { return known_; }
  [[nodiscard]] Duration Or(Duration fallback) const { return known_ ? Duration(mean_) : fallback; }

 private:
  Duration::rep mean_ = 0;
  bool known_ = false;
};

struct CostDefaults {
  BytesPerSecond link{6e9};                      // until a load was seen
  Duration run = std::chrono::milliseconds(10);  // of a model that never ran
};

class CostModel {
 public:
  explicit CostModel(CostDefaults defaults = {}) : defaults_(defaults) {}

  void ObserveLoad(Bytes bytes, Duration took);
  void ObserveRun(const std::string& model, Duration took);
  void Forget(const std::string& model) { runs_.erase(model); }

  // Time to bring `bytes` over the link, at the rate that was last seen.
  [[nodiscard]] Duration LoadTime(Bytes bytes) const;
  [[nodiscard]] Duration RunTime(const std::string& model) const;

 private:
  CostDefaults defaults_;
  double nanos_per_byte_ = 0;                              // 0: no load was seen
  std::unordered_map<std::string, RunningEstimate> runs_;  // looked up, never iterated
};

}  // namespace troupe

// FUNCTION RATES: how many requests a second an instance serves on a part of a GPU: by the function's profile, corrected by
// what is observed, or by what is observed alone when there is no profile. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/autoscaling/scaled_function.hpp"

namespace troupe::cluster {

// Throughput for each part of a GPU: FaST-GShare's RPR (001, section 3.4.1), in requests a second of a whole GPU.
[[nodiscard]] double RatePerResource(const ScalePoint& point);

class FunctionRates {
 public:
  // `window`: of which functions have their quotas (001, section 3.3.2).
  FunctionRates(const ScaledFunction& function, Duration window) : window_(window) { Use(function); }
  // Its profile, deadline or kinds have changed. What was observed stays, unless another profile takes its place.
  void Use(const ScaledFunction& function);

  // What was served while instances that can serve `rated` a second were busy for a part of their time.
  void Observe(const FunctionLoad& load, double rated);

  // What can be chosen on GPUs of this kind, corrected, ascending by area: points whose runs end within the deadline, also
  // when one waits for the next window once; all points when none does. Without a profile, parts of the profiler's grid
  // whose throughput grows with their area. Empty: the kind cannot run the function.
  [[nodiscard]] std::vector<ScalePoint> PointsOn(const std::string& kind) const;
  // As a profile says, or else in proportion to the area; not corrected.
  [[nodiscard]] double RatedOf(const std::string& kind, const Extent& extent) const;
  [[nodiscard]] double Of(const std::string& kind, const Extent& extent) const {
    return RatedOf(kind, extent) * correction_;
  }
  // "by its profile", "by its profile, of which 12 % is observed", "by what is observed, as there is no profile".
  [[nodiscard]] std::string Basis() const;
  [[nodiscard]] double correction() const { return correction_; }

 private:
  Duration window_;
  std::map<std::string, std::vector<ScalePoint>> points_;
  bool profiled_ = false;
  double correction_ = 1;  // observed for each rated request a second
};

}  // namespace troupe::cluster

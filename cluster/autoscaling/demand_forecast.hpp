// DEMAND FORECAST: for how many requests a second a function will be asked soon, from how many it was asked for. By name;
// the autoscaler has one for each function. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/policy.hpp"
#include "base/units.hpp"

namespace troupe::cluster {

enum class ForecastRule {
  kLast,    // as at the latest observation
  kHolt,    // the level and its trend, both smoothed exponentially (Holt 1957)
  kSeason,  // the latest, and by how much the day before differed between now and then
  kOracle,  // what the caller knows: for experiments
};

//   holt     the default
//   last     what FaST-GShare's scaler is given in experiments (001 says "predicted request loads" and no more)
//   season   of a day, in slots of five minutes; a slot that was not seen yet counts as `holt`
//   oracle   for experiments: the load that will come is told with each observation
[[nodiscard]] std::span<const PolicyEntry<ForecastRule>> Forecasts();
[[nodiscard]] absl::StatusOr<ForecastRule> FindForecast(std::string_view name);

class DemandForecast {
 public:
  explicit DemandForecast(ForecastRule rule = ForecastRule::kHolt) : rule_(rule) {}

  // Requests a second since the observation before. Observations come in the order of time; what is negative or not a
  // number counts as 0. `known`: the highest rate until the time that forecasts are for.
  void Observe(double per_second, Time now, std::optional<double> known = std::nullopt);
  // Requests a second so long after the latest observation. No rule but the oracle expects less than that: a function has
  // fewer instances when less was needed for a while. 0 before the first observation.
  [[nodiscard]] double Expected(Duration ahead) const;

 private:
  static constexpr Duration kDay = std::chrono::hours(24);
  static constexpr Duration kSlot = std::chrono::minutes(5);

  [[nodiscard]] double Trend(Duration ahead) const;
  [[nodiscard]] static std::size_t SlotOf(Time time);

  ForecastRule rule_;
  std::optional<Time> at_{};
  double last_ = 0;
  double level_ = 0;
  double slope_ = 0;  // per second
  std::optional<double> known_{};
  // Of a day: the mean of each slot, smoothed over the days; below 0: not seen yet. Empty unless the rule is `season`.
  std::vector<double> day_{};
};

}  // namespace troupe::cluster

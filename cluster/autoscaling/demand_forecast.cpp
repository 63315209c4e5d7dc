#include "cluster/autoscaling/demand_forecast.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe::cluster {

namespace {

// Holt's constants, of observations about a second apart: a level that follows a burst within two of them, and a trend
// that one of them alone does not turn.
constexpr double kLevelWeight = 0.6;
constexpr double kTrendWeight = 0.4;
constexpr Duration kGap =
    std::chrono::seconds(30);       // without an observation: a trend from before says nothing
constexpr double kDayWeight = 0.3;  // of the newest observation in the mean of its slot

}  // namespace

std::span<const PolicyEntry<ForecastRule>> Forecasts() {
  static constexpr std::array<PolicyEntry<ForecastRule>, 4> kTable = {{
      {"holt", "level and trend, smoothed", ForecastRule::kHolt},
      {"last", "as at the latest observation", ForecastRule::kLast},
      {"season", "the latest, changed as the day before changed", ForecastRule::kSeason},
      {"oracle", "what the caller knows of the load that comes; for experiments", ForecastRule::kOracle},
  }};
  return kTable;
}

absl::StatusOr<ForecastRule> FindForecast(std::string_view name) {
  return FindPolicy("forecast", name, Forecasts());
}

void DemandForecast::Observe(double per_second, Time now, std::optional<double> known) {
  const double rate = std::isfinite(per_second) ? std::max(per_second, 0.0) : 0;
  known_ = known;
  last_ = rate;
  if (rule_ == ForecastRule::kSeason) {
    if (day_.empty()) day_.assign(static_cast<std::size_t>(kDay / kSlot), -1);
    double& slot = day_[SlotOf(now)];
    slot = slot < 0 ? rate : slot + kDayWeight * (rate - slot);
  }
  const double passed = at_ ? ToSeconds(now - *at_) : 0;
  if (!at_ || passed <= 0 || passed > ToSeconds(kGap)) {
    level_ = rate;
    slope_ = 0;
  } else {
    const double before = level_;
    // The weights are those of an observation of a second.
    const double new_level = 1 - std::pow(1 - kLevelWeight, passed);
    const double new_trend = 1 - std::pow(1 - kTrendWeight, passed);
    level_ = new_level * rate + (1 - new_level) * (level_ + slope_ * passed);
    slope_ = new_trend * (level_ - before) / passed + (1 - new_trend) * slope_;
  }
  at_ = now;
}

double DemandForecast::Trend(Duration ahead) const {
  return std::max(level_ + slope_ * ToSeconds(ahead), 0.0);
}

double DemandForecast::Expected(Duration ahead) const {
  if (!at_) return 0;
  switch (rule_) {
    case ForecastRule::kLast:
      return last_;
    case ForecastRule::kHolt:
      return std::max(Trend(ahead), last_);
    case ForecastRule::kOracle:
      return std::max(known_.value_or(last_), 0.0);
    case ForecastRule::kSeason: {
      const double then = day_[SlotOf(*at_ + ahead)];
      const double change = then < 0 ? Trend(ahead) - last_ : then - day_[SlotOf(*at_)];
      return last_ + std::max(change, 0.0);
    }
  }
  return last_;
}

std::size_t DemandForecast::SlotOf(Time time) {
  const auto slots = kDay / kSlot;
  const auto slot = time.time_since_epoch() / kSlot % slots;
  return static_cast<std::size_t>(slot < 0 ? slot + slots : slot);
}

}  // namespace troupe::cluster

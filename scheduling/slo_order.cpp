#include "scheduling/slo_order.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

constexpr double kScoreUnit = 1e6;  // scores are whole numbers, to make keys that compare exactly
constexpr double kLargestScore = 9e18;

std::int64_t Whole(double score) {
  return static_cast<std::int64_t>(std::clamp(score * kScoreUnit, -kLargestScore, kLargestScore));
}

}  // namespace

void SloStanding::Ended(double percentile, bool in_time, Duration latency) {
  ++period_ended;
  period_in_time += in_time ? 1 : 0;
  latency_seconds += std::max(0.0, ToSeconds(latency));
  if (count.Add(percentile, in_time)) latency_seconds /= 2;
}

double SloStanding::Score(const SloRules& rules) const {
  const double share = Share();
  const double missing =
      (share * static_cast<double>(count.ended) - static_cast<double>(count.in_time)) / (1 - share);
  if (!rules.by_latency || count.ended == 0) return missing;
  return missing * latency_seconds / static_cast<double>(count.ended);
}

void SloAlpha::Place(const std::vector<SloStanding*>& standings) const {
  std::vector<std::pair<double, SloStanding*>> order;
  double total = 0;
  for (SloStanding* const standing : standings) {
    order.emplace_back(standing->Score(rules_), standing);
    total += std::max(order.back().first, 0.0);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // The sum above ran in another order: a hair of room keeps rounding from splitting what alpha = 1 lets in.
  const double room = alpha_ * total * (1 + 1e-9);
  double sum = 0;
  bool high = true;
  for (const auto& [score, standing] : order) {
    sum += std::max(score, 0.0);
    high = high && sum <= room;
    standing->place = high ? FunctionPlace{.group = 0, .score = -Whole(score)}
                           : FunctionPlace{.group = 1, .score = Whole(score)};
  }
}

void SloAlpha::Adjust(const std::vector<SloStanding*>& standings) {
  std::size_t seen = 0;
  std::size_t met = 0;
  for (SloStanding* const standing : standings) {
    const auto ended = rules_.share_of_period ? standing->period_ended : standing->count.ended;
    const auto in_time = rules_.share_of_period ? standing->period_in_time : standing->count.in_time;
    standing->period_ended = standing->period_in_time = 0;
    if (ended == 0) continue;
    ++seen;
    met += static_cast<double>(in_time) >= standing->Share() * static_cast<double>(ended) ? 1 : 0;
  }
  if (seen == 0) return;
  const double share = static_cast<double>(met) / static_cast<double>(seen);
  // The released router has zero for the first period, and takes any change from zero for a rise.
  const bool first = last_share_ < 0;
  double change = first ? 0 : share - last_share_;
  if (rules_.relative_change) change = last_share_ > 0 ? change / last_share_ : rules_.threshold;
  const bool rise = rules_.relative_change ? change >= rules_.threshold : change > rules_.threshold;
  if (rise) {
    alpha_ = std::min(alpha_ * rules_.scale, 1.0);
  } else if (change < -rules_.threshold) {
    alpha_ /= rules_.scale;
  } else {
    alpha_ = std::min(alpha_ * rules_.creep, 1.0);
  }
  // The paper compares with the period before, the released router with the last share that moved alpha.
  if (!rules_.relative_change || rise || change < -rules_.threshold) last_share_ = share;
}

}  // namespace troupe

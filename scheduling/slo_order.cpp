#include "scheduling/slo_order.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

constexpr std::size_t kMostOrderedFunctions =
    16384;                          // the function that is idle longest is forgotten for a new one
constexpr double kScoreUnit = 1e6;  // scores are whole numbers, to make keys that compare exactly
constexpr double kLargestScore = 9e18;

std::int64_t Whole(double score) {
  return static_cast<std::int64_t>(std::clamp(score * kScoreUnit, -kLargestScore, kLargestScore));
}

}  // namespace

double SloOrder::Share(const Function& function) {
  return std::min(function.count.percentile, 99.99) / 100;
}

double SloOrder::Score(const Function& function) const {
  const double share = Share(function);
  const SloCount& count = function.count;
  const double missing =
      (share * static_cast<double>(count.ended) - static_cast<double>(count.in_time)) / (1 - share);
  if (!rules_.by_latency || count.ended == 0) return missing;
  return missing * function.latency_seconds / static_cast<double>(count.ended);
}

void SloOrder::Ended(const std::string& name, double percentile, bool in_time, Duration latency) {
  if (functions_.size() >= kMostOrderedFunctions && !functions_.contains(name)) Forget();
  Function& function = functions_[name];
  function.last = ++ends_;
  ++function.period_ended;
  function.period_in_time += in_time ? 1 : 0;
  function.latency_seconds += std::max(0.0, ToSeconds(latency));
  if (function.count.Add(percentile, in_time)) function.latency_seconds /= 2;
}

void SloOrder::Forget() {
  functions_.erase(std::min_element(functions_.begin(), functions_.end(), [](const auto& a, const auto& b) {
    return a.second.last < b.second.last;
  }));
}

FunctionPlace SloOrder::PlaceOf(const std::string& function) const {
  const auto it = functions_.find(function);
  return it == functions_.end() ? FunctionPlace{} : it->second.place;
}

bool SloOrder::Reorder(Time now) {
  if (now < next_) return false;
  next_ = now + rules_.reorder_every;
  if (++reorders_ % rules_.reorders_per_alpha == 0) AdjustAlpha();
  Place();
  return true;
}

void SloOrder::Place() {
  std::vector<std::pair<double, Function*>> order;
  double total = 0;
  for (auto& [name, function] : functions_) {
    order.emplace_back(Score(function), &function);
    total += std::max(order.back().first, 0.0);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // The sum above ran in another order: a hair of room keeps rounding from splitting what alpha = 1 lets in.
  const double room = alpha_ * total * (1 + 1e-9);
  double sum = 0;
  bool high = true;
  for (const auto& [score, function] : order) {
    sum += std::max(score, 0.0);
    high = high && sum <= room;
    function->place = high ? FunctionPlace{.group = 0, .score = -Whole(score)}
                           : FunctionPlace{.group = 1, .score = Whole(score)};
  }
}

void SloOrder::AdjustAlpha() {
  std::size_t seen = 0;
  std::size_t met = 0;
  for (auto& [name, function] : functions_) {
    const auto ended = rules_.share_of_period ? function.period_ended : function.count.ended;
    const auto in_time = rules_.share_of_period ? function.period_in_time : function.count.in_time;
    function.period_ended = function.period_in_time = 0;
    if (ended == 0) continue;
    ++seen;
    met += static_cast<double>(in_time) >= Share(function) * static_cast<double>(ended) ? 1 : 0;
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

#include "cluster/autoscaling/function_rates.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduling/profile_grid.hpp"

namespace troupe::cluster {

namespace {

// Instances that are busy for less say little about how many they could serve.
constexpr double kBusyEnough = 0.05;
// Of the newest observation: of a profile that is ten times too fast, twenty leave an error of 10 %.
constexpr double kCorrectionWeight = 0.2;
// A difference that Basis says.
constexpr double kWorthSaying = 0.1;
// Of a function about which nothing is known: what a whole GPU would serve, until the first observation corrects it.
constexpr double kAssumedPerSecond = 50;

double PartOf(const Extent& extent) {
  return extent.area() / static_cast<double>(kWholeGpu * kWholeGpu);
}

std::vector<Extent> GridExtents() {
  std::vector<Extent> extents;
  for (const std::uint32_t sms : kGridShares)
    for (const std::uint32_t quota : kGridQuotas) extents.push_back({.quota = quota, .sms = sms});
  return extents;
}

std::vector<ScalePoint> ProportionalPoints(const std::vector<Extent>& extents) {
  std::vector<ScalePoint> points;
  for (const Extent& extent : extents)
    points.push_back({.extent = extent, .per_second = kAssumedPerSecond * PartOf(extent), .run = {}});
  return points;
}

// The longest that a request takes which finds its instance idle: it may have to wait for the next window once.
Duration LongestRun(const ScalePoint& point, Duration window) {
  return point.run + window / kWholeGpu * (kWholeGpu - point.extent.quota);
}

std::vector<ScalePoint> WithinDeadline(const std::vector<ScalePoint>& points, Duration deadline,
                                       Duration window) {
  if (deadline <= Duration()) return points;
  std::vector<ScalePoint> within;
  // Half of the deadline is left to wait for the request before it.
  std::ranges::copy_if(points, std::back_inserter(within),
                       [&](const ScalePoint& point) { return LongestRun(point, window) <= deadline / 2; });
  return within.empty() ? points : within;
}

}  // namespace

double RatePerResource(const ScalePoint& point) {
  return point.per_second / PartOf(point.extent);
}

void FunctionRates::Use(const ScaledFunction& function) {
  const auto before = std::exchange(points_, {});
  const bool was_profiled = std::exchange(profiled_, false);
  for (const auto& [kind, points] : function.points) {
    if (points.empty()) continue;
    profiled_ = true;
    points_[kind] = WithinDeadline(points, function.deadline, window_);
  }
  if (!profiled_) {
    const auto points = ProportionalPoints(function.extents.empty() ? GridExtents() : function.extents);
    for (const std::string& kind : function.kinds) points_[kind] = points;
  }
  for (auto& [kind, points] : points_)
    std::ranges::stable_sort(points, {}, [](const ScalePoint& point) { return point.extent.area(); });
  if (profiled_) {
    // What was observed corrected another profile, or an assumption.
    if (points_ != before) correction_ = 1;
  } else if (was_profiled && !points_.empty()) {
    // What is assumed now comes to as much as what the profile said, corrected.
    const auto& [kind, points] = *points_.begin();
    const auto old = before.find(kind);
    if (old != before.end() && !old->second.empty() && !points.empty())
      correction_ *= old->second.back().per_second / points.back().per_second;
  }
}

void FunctionRates::Observe(const FunctionLoad& load, double rated) {
  if (!(load.busy >= kBusyEnough) || !(rated > 0) || !(load.served_per_second > 0)) return;
  const double seen = load.served_per_second / load.busy / rated;
  correction_ += kCorrectionWeight * (std::clamp(seen, 0.001, 1000.0) - correction_);
}

std::vector<ScalePoint> FunctionRates::PointsOn(const std::string& kind) const {
  const auto it = points_.find(kind);
  if (it == points_.end()) return {};
  std::vector<ScalePoint> points = it->second;
  for (ScalePoint& point : points) point.per_second *= correction_;
  return points;
}

double FunctionRates::RatedOf(const std::string& kind, const Extent& extent) const {
  const auto it = points_.find(kind);
  if (it == points_.end()) return 0;
  double best = 0;
  for (const ScalePoint& point : it->second) {
    if (point.extent == extent) return point.per_second;
    if (point.extent.Fits(extent)) best = std::max(best, point.per_second);
  }
  return best;
}

std::string FunctionRates::Basis() const {
  if (!profiled_) return "by what is observed, as there is no profile";
  if (std::abs(correction_ - 1) <= kWorthSaying) return "by its profile";
  return absl::StrCat("by its profile, of which ", std::lround(correction_ * 100), " % is observed");
}

}  // namespace troupe::cluster

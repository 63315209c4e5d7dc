#include "cluster/autoscaling/scaling_policy.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace troupe::cluster {

namespace {

// Rates that differ by less are equal.
constexpr double kSame = 1e-6;
// An instance that runs is given more only if it makes at least so much of it as the best point would.
constexpr double kWellUsed = 0.5;
constexpr double kHpaTolerance = 0.1;
constexpr Duration kHpaPeriod = std::chrono::seconds(15);
constexpr Duration kHpaStabilisation = std::chrono::minutes(5);

// The point with the most throughput for each part of a GPU; of several the largest, which has the fewest instances.
ScalePoint MostEfficient(const std::vector<ScalePoint>& points) {
  return *std::ranges::max_element(points, [](const ScalePoint& a, const ScalePoint& b) {
    const double left = RatePerResource(a);
    const double right = RatePerResource(b);
    return std::abs(left - right) > kSame * right ? left < right : a.per_second < b.per_second;
  });
}

// Of the points that serve `rate`, the one with the smallest part of a GPU; of equal parts, the one that serves less. When no point
// serves `rate`, the one that serves most.
ScalePoint JustEnough(const std::vector<ScalePoint>& points, double rate) {
  const ScalePoint* best = nullptr;
  const auto before = [](const ScalePoint& a, const ScalePoint& b) {
    return a.extent.area() != b.extent.area() ? a.extent.area() < b.extent.area()
                                              : a.per_second < b.per_second - kSame;
  };
  for (const ScalePoint& point : points)
    if (point.per_second >= rate && (best == nullptr || before(point, *best))) best = &point;
  if (best != nullptr) return *best;
  return *std::ranges::max_element(points, {}, &ScalePoint::per_second);
}

// What `choose` says of each kind that can run the function.
template <class Choose>
PointByKind PointsFor(const FunctionScaler& function, const RectangleTable& table, Choose choose) {
  PointByKind chosen;
  for (const auto& [name, gpu] : table.gpus()) {
    const std::string& kind = gpu.gpu().kind;
    if (chosen.contains(kind)) continue;
    const auto points = function.rates().PointsOn(kind);
    if (!points.empty()) chosen[kind] = choose(points);
  }
  return chosen;
}

std::string WhyScaled(const FunctionScaler& function, double wanted, double capacity) {
  return absl::StrFormat(
      "%.1f requests/s are expected and %d wait, so instances for %.1f/s are wanted at %.0f %% utilisation; there are "
      "instances for %.1f/s %s",
      function.need().expected, function.need().waiting, wanted,
      100 * function.function().limits.target_utilisation, capacity, function.rates().Basis());
}

class ScalingSteps {
 public:
  ScalingSteps(FunctionScaler& function, const ScalingTick& tick, double wanted)
      : function_(function), tick_(tick), wanted_(wanted), capacity_(function.Capacity(tick.table)) {}

  [[nodiscard]] double Gap() const { return wanted_ - function_.Capacity(tick_.table); }
  [[nodiscard]] std::size_t Count() const { return function_.Serving(tick_.table).size(); }
  [[nodiscard]] const ScaleLimits& limits() const { return function_.function().limits; }

  // More for instances that run.
  void Grow() {
    std::set<std::pair<InstanceId, Extent>> tried;
    while (Gap() > kSame) {
      const auto growth = BestGrowth(tried);
      if (!growth) return;
      tried.emplace(growth->id, growth->point.extent);
      function_.Resize(growth->id, growth->point, Why(), tick_);
    }
  }

  // 001's Algorithm 1, upwards.
  void AddInstances() {
    while (Gap() > kSame || Count() < limits().min_instances) {
      const std::size_t count = Count();
      if (count >= limits().max_instances) {
        function_.Note(ScaleAction::kNoRoom,
                       absl::StrFormat("%s; it has as many instances as it may have, %d", Why(), count),
                       tick_);
        return;
      }
      // With few instances left to add, each has to be larger than the most efficient one.
      const double each = Gap() / static_cast<double>(limits().max_instances - count);
      const auto points = PointsFor(function_, tick_.table, [&](const std::vector<ScalePoint>& of_kind) {
        const ScalePoint efficient = MostEfficient(of_kind);
        const bool whole = Gap() >= efficient.per_second && each <= efficient.per_second;
        return whole ? efficient : JustEnough(of_kind, std::max(each, std::min(Gap(), efficient.per_second)));
      });
      if (points.empty() || !(function_.Add(points, Why(), tick_) || AddSmaller(points))) {
        function_.Note(ScaleAction::kNoRoom,
                       absl::StrFormat("%s; no GPU of the cluster has room for another instance", Why()),
                       tick_);
        return;
      }
    }
  }

  // 001's Algorithm 1, downwards: the least efficient first, as long as what they serve is too much.
  void DrainInstances() {
    for (const ServingInstance& front : function_.Serving(tick_.table)) {
      if (Count() <= std::max<std::size_t>(limits().min_instances, 1) || front.per_second > -Gap() + kSame)
        return;
      function_.Drain(front.id, Why(), tick_);
    }
  }

  void Shrink() {
    auto serving = function_.Serving(tick_.table);
    for (const ServingInstance& instance : serving) {
      const double enough = std::max(instance.per_second + Gap(), 0.0);
      const auto points = function_.rates().PointsOn(instance.kind);
      const ScalePoint* smaller = nullptr;
      for (const ScalePoint& point : points)
        if (point.per_second + kSame >= enough && point.extent.Fits(instance.extent) &&
            (smaller == nullptr || point.extent.area() < smaller->extent.area()))
          smaller = &point;
      if (smaller != nullptr && smaller->extent != instance.extent && Gap() < -kSame)
        function_.Resize(instance.id, *smaller, Why(), tick_);
    }
  }

  void DrainAllBut(std::size_t count) {
    for (const ServingInstance& instance : function_.Serving(tick_.table)) {
      if (Count() <= count) return;
      function_.Drain(instance.id, Why(), tick_);
    }
  }

 private:
  struct Growth {
    InstanceId id = 0;
    ScalePoint point;
    double more = 0;         // requests a second
    std::uint32_t area = 0;  // that it takes
  };
  // What closes the gap with the least area, else what closes most of it.
  [[nodiscard]] std::optional<Growth> BestGrowth(const std::set<std::pair<InstanceId, Extent>>& tried) const {
    const double gap = Gap();
    std::optional<Growth> best;
    for (const ServingInstance& instance : function_.Serving(tick_.table)) {
      const auto points = function_.rates().PointsOn(instance.kind);
      const double efficient = RatePerResource(MostEfficient(points));
      for (const ScalePoint& point : points) {
        if (!instance.extent.Fits(point.extent) || tried.contains({instance.id, point.extent})) continue;
        const Growth growth{.id = instance.id,
                            .point = point,
                            .more = point.per_second - instance.per_second,
                            .area = point.extent.area() - instance.extent.area()};
        if (growth.more <= kSame || growth.area == 0) continue;
        if (growth.more / growth.area * kWholeGpu * kWholeGpu < kWellUsed * efficient) continue;
        if (!best || Better(growth, *best, gap)) best = growth;
      }
    }
    return best;
  }
  static bool Better(const Growth& a, const Growth& b, double gap) {
    const bool a_closes = a.more >= gap;
    const bool b_closes = b.more >= gap;
    if (a_closes != b_closes) return a_closes;
    return a_closes ? a.area < b.area : a.more > b.more;
  }

  // The largest part for which there is room, on the kinds of `points`.
  bool AddSmaller(const PointByKind& points) {
    std::vector<double> rates;
    for (const auto& [kind, point] : points)
      for (const ScalePoint& smaller : function_.rates().PointsOn(kind))
        if (smaller.per_second < point.per_second) rates.push_back(smaller.per_second);
    std::ranges::sort(rates, std::greater<>());
    for (const double rate : rates) {
      const auto smaller = PointsFor(function_, tick_.table, [&](const std::vector<ScalePoint>& of_kind) {
        return JustEnough(of_kind, rate);
      });
      if (function_.Add(smaller, Why(), tick_)) return true;
    }
    return false;
  }

  // Most looks change nothing, and then the words are not needed.
  [[nodiscard]] std::string Why() const { return WhyScaled(function_, wanted_, capacity_); }

  FunctionScaler& function_;
  const ScalingTick& tick_;
  double wanted_;
  double capacity_;  // when the look began
};

// A function without requests for long has no instance, unless it has to have some.
bool BoundLate(FunctionScaler& function, const ScalingTick& tick) {
  const ScaleLimits& limits = function.function().limits;
  if (!function.Idle(tick.now) || limits.min_instances > 0) return false;
  function.Rest(
      absl::StrFormat("no request came for %.0f s: its host copies stay, and requests are bound late",
                      ToSeconds(limits.idle)),
      tick);
  return true;
}

void ScaleAsTroupe(FunctionScaler& function, const ScalingTick& tick) {
  if (BoundLate(function, tick)) return;
  const ScalingNeed& need = function.need();
  if (need.wanted > function.Capacity(tick.table) + kSame ||
      function.Serving(tick.table).size() < function.function().limits.min_instances) {
    ScalingSteps steps(function, tick, need.wanted);
    steps.Grow();
    steps.AddInstances();
    return;
  }
  ScalingSteps steps(function, tick, need.wanted_held);
  steps.DrainInstances();
  steps.Shrink();
}

void ScaleAsFast(FunctionScaler& function, const ScalingTick& tick) {
  if (BoundLate(function, tick)) return;
  ScalingSteps steps(function, tick, function.need().wanted);
  if (steps.Gap() > kSame || steps.Count() < steps.limits().min_instances) {
    steps.AddInstances();
  } else {
    steps.DrainInstances();
  }
}

void ScaleAsHpa(FunctionScaler& function, const ScalingTick& tick) {
  FunctionScaler::Looks& looks = function.looks();
  if (looks.latest && tick.now - *looks.latest < kHpaPeriod) return;
  looks.latest = tick.now;
  const ScaleLimits& limits = function.function().limits;
  const std::size_t count = function.Serving(tick.table).size();
  const double ratio = function.need().busy / limits.target_utilisation;
  const double wanted = std::abs(ratio - 1) <= kHpaTolerance ? static_cast<double>(count)
                                                             : std::ceil(static_cast<double>(count) * ratio);
  const auto least = static_cast<double>(std::max<std::uint32_t>(limits.min_instances, 1));
  const auto recommended =
      static_cast<std::uint32_t>(std::clamp(wanted, least, std::max<double>(limits.max_instances, least)));
  auto& recent = looks.recommended;
  recent.emplace_back(tick.now, recommended);
  while (tick.now - recent.front().first > kHpaStabilisation) recent.pop_front();
  std::uint32_t most = 0;
  for (const auto& [at, one] : recent) most = std::max(most, one);

  const std::string why =
      absl::StrFormat("%d instances are %.0f %% busy of %.0f %%: ceil(%d x %.2f) are wanted", count,
                      100 * function.need().busy, 100 * limits.target_utilisation, count, ratio);
  const auto points = PointsFor(function, tick.table, &MostEfficient);
  for (std::size_t more = count; more < recommended; ++more)
    if (points.empty() || !function.Add(points, why, tick)) {
      function.Note(ScaleAction::kNoRoom, why + "; no GPU of the cluster has room for another instance",
                    tick);
      return;
    }
  if (most < count) ScalingSteps(function, tick, 0).DrainAllBut(most);
}

}  // namespace

void KeepToLimits(FunctionScaler& function, const ScalingTick& tick) {
  const auto why = "its declarations or its profile changed";
  for (const ServingInstance& instance : function.Serving(tick.table)) {
    const auto points = function.rates().PointsOn(instance.kind);
    if (std::ranges::any_of(points, [&](const ScalePoint& point) { return point.extent == instance.extent; }))
      continue;
    const bool kept =
        !points.empty() && function.Resize(instance.id, JustEnough(points, instance.per_second), why, tick);
    if (!kept) function.Drain(instance.id, why, tick);
  }
  auto serving = function.Serving(tick.table);
  const std::size_t most = function.function().limits.max_instances;
  for (std::size_t surplus = 0; surplus + most < serving.size(); ++surplus)
    function.Drain(serving[surplus].id, absl::StrFormat("%d instances are the most that it may have", most),
                   tick);
}

std::span<const PolicyEntry<ScalingRule>> ScalingPolicies() {
  static constexpr std::array<PolicyEntry<ScalingRule>, 3> kTable = {{
      {"troupe", "instances that run grow first, then more are added; down after a while", &ScaleAsTroupe},
      {"fast-scaler", "FaST-GShare's Algorithm 1: instances are added and drained, none changes",
       &ScaleAsFast},
      {"hpa", "Kubernetes' rule: the number of instances by their utilisation, every 15 s", &ScaleAsHpa},
  }};
  return kTable;
}

absl::StatusOr<ScalingRule> FindScalingPolicy(std::string_view name) {
  return FindPolicy("scaling", name, ScalingPolicies());
}

}  // namespace troupe::cluster

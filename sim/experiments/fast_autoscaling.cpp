// FaST-GShare's autoscaling (001, 3.4.1 and 5.4): ResNet within 69 ms while its load rises, steps and bursts, under ours and
// under other rules by name. The manager's own autoscaler decides (cluster/autoscaling); instances and their queue are a
// model (sim/scaled_instances).
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "scheduling/profile_grid.hpp"
#include "sim/experiments/fast_setup.hpp"
#include "sim/scaled_instances.hpp"

namespace troupe::sim {

namespace {

constexpr const char* kKind = "v100";
constexpr std::uint32_t kGpus = 16;
constexpr Duration kWarmUp = std::chrono::seconds(60);  // at the load with which the case begins

struct ScalingPreset {
  const char* name;
  const char* policy;    // cluster/autoscaling/scaling_policy.hpp
  const char* forecast;  // cluster/autoscaling/demand_forecast.hpp
};
constexpr ScalingPreset kScalingPresets[] = {{"fast-scaler", "fast-scaler", "last"},
                                             {"hpa", "hpa", "last"},
                                             {"oracle", "troupe", "oracle"},
                                             {"troupe", "troupe", "holt"}};

// The load goes from each point to the next in a straight line, and stays at the last one.
struct LoadPoint {
  double at_s = 0;
  double per_second = 0;
};
struct LoadCase {
  const char* name;
  std::vector<LoadPoint> points;
  double length_s = 0;
};
const std::vector<LoadCase>& LoadCases() {
  static const std::vector<LoadCase> kCases = {
      {"ramp", {{0, 20}, {300, 400}, {600, 20}}, 660},
      {"steps",
       {{0, 50},
        {120, 50},
        {120, 150},
        {240, 150},
        {240, 350},
        {360, 350},
        {360, 150},
        {480, 150},
        {480, 50}},
       600},
      {"crowd",
       {{0, 50}, {120, 50}, {125, 500}, {185, 500}, {190, 50}},
       300},  // ten times as much within 5 s
  };
  return kCases;
}

double LoadAt(const std::vector<LoadPoint>& points, double second) {
  if (second <= points.front().at_s) return points.front().per_second;
  for (std::size_t i = 1; i < points.size(); ++i)
    if (second < points[i].at_s)
      return std::lerp(points[i - 1].per_second, points[i].per_second,
                       (second - points[i - 1].at_s) / (points[i].at_s - points[i - 1].at_s));
  return points.back().per_second;
}

// The profiler's grid (001, 5.2) of a model whose runs take what the paper's table says.
std::vector<cluster::ScalePoint> PointsOf(const RunCost& cost) {
  std::vector<cluster::ScalePoint> points;
  for (const std::uint32_t sms : kGridShares)
    for (const std::uint32_t quota : kGridQuotas) {
      const Duration run = cost.On(SharedGpuLadder().For(sms));
      points.push_back(
          {.extent = {.quota = quota, .sms = sms}, .per_second = quota / 100.0 / ToSeconds(run), .run = run});
    }
  return points;
}

absl::StatusOr<Summary> ScaleThrough(const ScalingPreset& preset, const LoadCase& load, const RunCost& cost,
                                     Duration deadline, std::uint64_t seed) {
  ScaledSetup setup{
      .function = {.name = "ResNet",
                   .limits = {.min_instances = 1},
                   .policy = preset.policy,
                   .forecast = preset.forecast,
                   .deadline = deadline,
                   .points = {{kKind, PointsOf(cost)}}},
      .cost = cost,
      .load = [&load](Duration since) { return LoadAt(load.points, ToSeconds(since - kWarmUp)); },
      .warm_up = kWarmUp,
      .length = kWarmUp + FromSeconds(load.length_s),
      .gpus = kGpus,
      .foreseen = std::string_view(preset.forecast) == "oracle",
      .seed = seed};
  for (const LoadPoint& point : load.points)
    setup.most_per_second = std::max(setup.most_per_second, point.per_second);
  // A rule that knows the coming load need not wait to see whether it stays low.
  if (setup.foreseen) setup.function.limits.hold = Duration();
  TROUPE_ASSIGN_OR_RETURN(auto outcome, ScaleInstances(setup));
  const auto count = [&](cluster::ScaleAction action) {
    return static_cast<double>(outcome.decisions[action]);
  };
  return Summary{{"late", 100.0 * static_cast<double>(outcome.late) / static_cast<double>(outcome.asked)},
                 {"gpu_s", outcome.gpu_seconds},
                 {"most_instances", outcome.most_instances},
                 {"added", count(cluster::ScaleAction::kAdd)},
                 {"resized", count(cluster::ScaleAction::kResize)}};
}

}  // namespace

absl::StatusOr<std::vector<Figure>> FastAutoscaling(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto table, FastTable::Read(options.data));
  TROUPE_ASSIGN_OR_RETURN(const auto cost, table.CostOf("ResNet"));
  TROUPE_ASSIGN_OR_RETURN(const double deadline_ms, table.Value("SLO", "ResNet", "ms"));
  TROUPE_ASSIGN_OR_RETURN(const double bound, table.Value("SLO violation bound", "ResNet", "pct"));
  std::vector<std::string> names;
  for (const ScalingPreset& preset : kScalingPresets) names.emplace_back(preset.name);
  const auto wanted = SharingPresets(options, names);
  Sweep sweep{
      .experiment = "fast-autoscaling",
      .cases = {},
      .quantities = {{"late", "%"}, {"gpu_s", "s"}, {"most_instances", ""}, {"added", ""}, {"resized", ""}},
      .summarize = nullptr,
      .paper = {{"ramp/fast-scaler/late", bound}, {"ramp/troupe/late", bound}}};
  std::vector<FastCase> cases;
  for (const LoadCase& load : LoadCases())
    for (const ScalingPreset& preset : kScalingPresets) {
      if (std::ranges::find(wanted, preset.name) == wanted.end()) continue;
      cases.push_back({.key = absl::StrCat(load.name, "/", preset.name),
                       .baseline = &preset == kScalingPresets
                                       ? ""
                                       : absl::StrCat(load.name, "/", kScalingPresets[0].name),
                       .run = [&, cost](std::uint64_t seed) {
                         return ScaleThrough(preset, load, cost, FromSeconds(deadline_ms / 1000), seed);
                       }});
    }
  return RunFast(std::move(sweep), cases, options);
}

}  // namespace troupe::sim

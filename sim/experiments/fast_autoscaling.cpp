// FaST-GShare's autoscaling (001, 3.4.1 and 5.4): ResNet within 69 ms while its load rises, steps, bursts and follows Azure's
// minutes, under ours and under other rules by name. The manager's own autoscaler decides (cluster/autoscaling); instances and their queue are a
// model (sim/scaled_instances).
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "scheduling/profile_grid.hpp"
#include "sim/experiments/azure_day.hpp"
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
  const char* name = "";
  std::vector<LoadPoint> points;
  double length_s = 0;
};
std::vector<LoadCase> ShapedLoads() {
  return {
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
}

constexpr double kBusiestMinute = 400;  // requests a second, as at the top of the ramp
constexpr std::size_t kAzureMinutes = 60;
constexpr std::size_t kBusyFunctions = 20;

// Each minute of Azure's asks at one rate, and the busiest one at kBusiestMinute.
LoadCase MinutesOf(const char* name, const std::vector<std::uint32_t>& counts) {
  const auto most = static_cast<double>(std::max<std::uint32_t>(1, *std::ranges::max_element(counts)));
  LoadCase load{.name = name, .points = {}, .length_s = 60.0 * static_cast<double>(counts.size())};
  for (std::size_t minute = 0; minute < counts.size(); ++minute) {
    const double rate = static_cast<double>(counts[minute]) * kBusiestMinute / most;
    load.points.push_back({60.0 * static_cast<double>(minute), rate});
    load.points.push_back({60.0 * static_cast<double>(minute + 1), rate});
  }
  return load;
}

// How much the counts change from one minute to the next, beside how large they are.
double Restlessness(const std::vector<std::uint32_t>& counts) {
  double changes = 0;
  for (std::size_t i = 1; i < counts.size(); ++i)
    changes += std::abs(static_cast<double>(counts[i]) - static_cast<double>(counts[i - 1]));
  return changes /
         std::max(1.0, static_cast<double>(std::reduce(counts.begin(), counts.end(), std::uint64_t{0})));
}

// All functions together, and of the busiest ones that whose load changes most.
absl::StatusOr<std::vector<LoadCase>> AzureLoads(ExperimentOptions options) {
  if (options.minutes == 0) options.minutes = kAzureMinutes;
  TROUPE_ASSIGN_OR_RETURN(auto day, ReadAzureDay(options));
  auto& rows = day.counts;
  std::vector<std::uint32_t> sums(rows.front().size());
  for (const auto& row : rows) std::ranges::transform(sums, row, sums.begin(), std::plus<>());
  std::ranges::stable_sort(rows, std::greater<>(), [](const auto& row) {
    return std::reduce(row.begin(), row.end(), std::uint64_t{0});
  });
  rows.resize(std::min(rows.size(), kBusyFunctions));
  const auto restless =
      std::ranges::max_element(rows, std::less<>(), [](const auto& row) { return Restlessness(row); });
  return std::vector<LoadCase>{MinutesOf("azure", sums), MinutesOf("azure-restless", *restless)};
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
  auto loads = ShapedLoads();
  TROUPE_ASSIGN_OR_RETURN(const auto azure, AzureLoads(options));
  loads.insert(loads.end(), azure.begin(), azure.end());
  std::vector<FastCase> cases;
  for (const LoadCase& load : loads)
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

// GPUs of two kinds, one half as fast, in one node or in two: how many requests a second are served by their deadlines when
// the node, or the router, goes by what runs take, and when all GPUs count as alike. The models are those of Torpor's
// Table 4 (002), which fit on every GPU; a model's deadline is a multiple of its run on the fast kind. Nothing
// is known of a model until it has run.
#include <algorithm>
#include <array>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.hpp"
#include "sim/experiments/experiment.hpp"
#include "sim/experiments/sweep.hpp"
#include "sim/experiments/torpor_setup.hpp"
#include "sim/presets.hpp"

namespace troupe::sim {

namespace {

constexpr std::uint32_t kGpusOfAKind = 4;
constexpr std::uint32_t kFunctions = 40;  // five of each model
constexpr std::uint32_t kMinutes = 3;     // the first one warms up
constexpr double kInTime = 0.98;          // of all requests: the paper's percentile
constexpr const char* kBlind = "troupe-kind-blind";

// Deadlines, in runs on the fast kind; zero: of the functions in turn each of the others.
constexpr double kMixed = 0;
constexpr std::array<double, 4> kDeadlines = {1.8, 3, 5, kMixed};
constexpr std::array<double, 4> kInTurn = {1.5, 3, 5, 10};

std::string NameOf(double deadline) {
  return deadline == kMixed ? "mixed" : absl::StrFormat("%gx", deadline);
}

// GPUs of both kinds in one node, in turn, so that their order helps neither; or a node of each kind.
ClusterSpec TwoKinds(const std::vector<ModelSpec>& models, double deadline, std::uint32_t nodes) {
  ClusterSpec cluster = TorporNode({});
  cluster.topology = {};  // a switch for each GPU, and no links between them
  cluster.nodes = nodes;
  cluster.gpus = 2 * kGpusOfAKind / nodes;
  cluster.kinds_are = nodes == 1 ? KindsAre::kInEachNode : KindsAre::kInNodesByTurn;
  for (std::uint32_t i = 0; i < (nodes == 1 ? kGpusOfAKind : 1); ++i) {
    cluster.kinds.push_back({.name = "half", .memory = cluster.gpu_memory, .speed = 0.5});
    cluster.kinds.push_back({.name = "whole", .memory = cluster.gpu_memory});
  }
  for (std::uint32_t i = 0; i < kFunctions; ++i) {
    ModelSpec& model = cluster.models.emplace_back(models[i % models.size()]);
    model.name = absl::StrCat(model.name, ".", i / models.size());
    const double runs = deadline == kMixed ? kInTurn[i / models.size() % kInTurn.size()] : deadline;
    model.deadline = FromSeconds(ToSeconds(model.times.run) * runs);
  }
  return cluster;
}

struct Case {
  double deadline = 0;
  std::uint32_t rate = 0;
  std::uint32_t nodes = 1;
  std::uint32_t minutes = 0;
  std::string preset{};
};

Summary InTimeSummary(const SimulationSetup& setup, const Outcome& outcome) {
  double judged = 0;
  double in_time = 0;
  std::vector<Duration> took;
  for (const Answer& answer : outcome.answers) {
    if (answer.at < kTorporWarmUp) continue;
    ++judged;
    in_time += answer.in_time ? 1 : 0;
    took.push_back(answer.took);
  }
  const double seconds = ToSeconds(setup.workload.length - kTorporWarmUp);
  return {{"in_time", judged > 0 ? in_time / judged : 0},
          {"in_time_per_s", in_time / seconds},
          {"p50_ms", ToMillis(NearestRank(took, 50))},
          {"computing", outcome.computing}};
}

// Up to which rate so many requests are in time, between two measured rates in proportion; zero: not even at
// the smallest. `shares`: by rate.
double RateAt(double wanted, const std::map<std::uint32_t, double>& shares) {
  double below = 0;
  double share_below = 1;
  for (const auto& [rate, share] : shares) {
    if (share < wanted)
      return below == 0 ? 0 : below + (rate - below) * (share_below - wanted) / (share_below - share);
    below = rate;
    share_below = share;
  }
  return below;
}

// By seed; none where a rate was not run.
std::vector<double> RatesAt(const SweepValues& values, const std::string& where, const std::string& preset,
                            const std::vector<std::uint32_t>& rates, std::size_t seeds) {
  std::vector<std::map<std::uint32_t, double>> shares(seeds);
  for (const std::uint32_t rate : rates) {
    const auto found = values.find(absl::StrCat(where, "/", rate, "/", preset));
    if (found == values.end()) return {};
    for (std::size_t i = 0; i < seeds; ++i) shares[i][rate] = found->second.at("in_time")[i];
  }
  std::vector<double> out;
  for (const auto& of_seed : shares) out.push_back(RateAt(kInTime, of_seed));
  return out;
}

absl::StatusOr<std::vector<Figure>> ByKinds(const ExperimentOptions& options, const char* experiment,
                                            std::uint32_t nodes) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadTorporInputs(options.data));
  const auto minutes = std::max<std::uint32_t>(2, MinutesOf(options, kMinutes));
  const auto presets = PresetsOf(options, {kBlind, "troupe"});
  std::vector<std::uint32_t> rates = options.rates;
  for (std::uint32_t rate = 20; options.rates.empty() && rate <= 300; rate += 20) rates.push_back(rate);
  std::ranges::sort(rates);
  Sweep sweep{.experiment = experiment,
              .cases = {},
              .quantities = {{"in_time", ""}, {"in_time_per_s", "1/s"}, {"p50_ms", "ms"}, {"computing", ""}},
              .summarize = &InTimeSummary,
              .paper = {}};
  for (const double deadline : kDeadlines)
    for (const std::uint32_t rate : rates)
      for (const std::string& preset : presets) {
        const auto at = absl::StrCat(NameOf(deadline), "/", rate, "/");
        sweep.cases.push_back(
            {.key = at + preset,
             .baseline = preset == kBlind ? "" : at + kBlind,
             .setup = [&inputs, one = Case{deadline, rate, nodes, minutes, preset}](std::uint64_t seed) {
               return TorporRunAlike(TwoKinds(inputs.models, one.deadline, one.nodes), kFunctions, one.rate,
                                     one.minutes, one.preset, seed);
             }});
      }
  TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, options));
  auto figures = FiguresOf(sweep, values);
  for (const double deadline : kDeadlines)
    for (const std::string& preset : presets) {
      const auto name = absl::StrCat(sweep.experiment, "/", NameOf(deadline), "/");
      auto at = RatesAt(values, NameOf(deadline), preset, rates, options.seeds);
      if (at.empty()) continue;
      figures.push_back({.name = absl::StrCat(name, preset, "/rate_at_98"),
                         .unit = "1/s",
                         .values = std::move(at),
                         .paper = {},
                         .baseline = preset == kBlind ? "" : absl::StrCat(name, kBlind, "/rate_at_98")});
    }
  return figures;
}

}  // namespace

absl::StatusOr<std::vector<Figure>> GpuKindChoice(const ExperimentOptions& options) {
  return ByKinds(options, "gpu-kinds", 1);
}

absl::StatusOr<std::vector<Figure>> NodeKindChoice(const ExperimentOptions& options) {
  return ByKinds(options, "gpu-kinds-nodes", 2);
}

}  // namespace troupe::sim

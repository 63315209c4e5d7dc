// Several gateways before the same nodes, which get the requests in turn: how many are in time when each gateway knows what all
// of them have given the nodes, and when it knows its own requests alone. The models are those of Torpor's Table 4 (002), with a
// copy in the memory of every node; a function's deadline is three of its runs.
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "sim/experiments/experiment.hpp"
#include "sim/experiments/sweep.hpp"
#include "sim/experiments/torpor_setup.hpp"

namespace troupe::sim {

namespace {

constexpr std::array<std::uint32_t, 4> kGateways = {1, 2, 4, 8};
constexpr std::uint32_t kNodes = 4;
constexpr std::uint32_t kGpus = 2;        // of each node
constexpr std::uint32_t kFunctions = 40;  // five of each model
constexpr std::uint32_t kMinutes = 3;     // the first one warms up
constexpr double kDeadlineInRuns = 3;
constexpr const char* kOwnWork = "troupe-own-work";
constexpr const char* kResidentFirst = "troupe-resident-first";

ClusterSpec FourNodes(const std::vector<ModelSpec>& models, std::uint32_t gateways) {
  ClusterSpec cluster = TorporNode({});
  cluster.topology = {};  // a switch for each GPU, and no links between them
  cluster.nodes = kNodes;
  cluster.gpus = kGpus;
  cluster.gateways = gateways;
  cluster.host_copies = kNodes;
  for (std::uint32_t i = 0; i < kFunctions; ++i) {
    ModelSpec& model = cluster.models.emplace_back(models[i % models.size()]);
    model.name = absl::StrCat(model.name, ".", i / models.size());
    model.deadline = FromSeconds(ToSeconds(model.times.run) * kDeadlineInRuns);
  }
  return cluster;
}

struct Case {
  std::uint32_t gateways = 1;
  std::uint32_t rate = 0;
  std::uint32_t minutes = 0;
  std::string preset{};
};

Summary InTimeSummary(const SimulationSetup&, const Outcome& outcome) {
  double in_time = 0;
  std::vector<Duration> took;
  for (const Answer& answer : outcome.answers) {
    if (answer.at < kTorporWarmUp) continue;
    in_time += answer.in_time ? 1 : 0;
    took.push_back(answer.took);
  }
  return {{"in_time", in_time / std::max<double>(1, static_cast<double>(took.size()))},
          {"p50_ms", ToMillis(NearestRank(took, 50))},
          {"p98_ms", ToMillis(NearestRank(took, 98))},
          {"computing", outcome.computing}};
}

}  // namespace

absl::StatusOr<std::vector<Figure>> GatewayChoice(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadTorporInputs(options.data));
  const auto minutes = std::max<std::uint32_t>(2, MinutesOf(options, kMinutes));
  std::vector<std::uint32_t> rates = options.rates;
  if (rates.empty()) rates = {150, 250, 300, 350};
  Sweep sweep{.experiment = "gateways",
              .cases = {},
              .quantities = {{"in_time", ""}, {"p50_ms", "ms"}, {"p98_ms", "ms"}, {"computing", ""}},
              .summarize = &InTimeSummary,
              .paper = {}};
  for (const std::uint32_t rate : rates)
    for (const std::uint32_t gateways : kGateways)
      for (const std::string& preset : PresetsOf(options, {kOwnWork, kResidentFirst, "troupe"})) {
        const auto at = absl::StrCat(gateways, "/", rate, "/");
        sweep.cases.push_back(
            {.key = at + preset,
             .baseline = preset == kOwnWork ? "" : at + kOwnWork,
             .setup = [&inputs, one = Case{gateways, rate, minutes, preset}](std::uint64_t seed) {
               return TorporRunAlike(FourNodes(inputs.models, one.gateways), kFunctions, one.rate,
                                     one.minutes, one.preset, seed);
             }});
      }
  TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, options));
  return FiguresOf(sweep, values);
}

}  // namespace troupe::sim

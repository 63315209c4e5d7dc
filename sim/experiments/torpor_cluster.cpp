// Torpor in a cluster (002, 7.4, Fig. 14): six nodes of four GPUs, deadlines of 150 and 250 ms.
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "sim/experiments/experiment.hpp"
#include "sim/experiments/torpor_setup.hpp"

namespace troupe::sim {

namespace {

constexpr std::uint32_t kMinutes = 31;

// The load of each node's GPUs relative to the largest of them, and its variance, averaged over the nodes.
double LoadVariance(const SimulationSetup& setup, const Outcome& outcome) {
  const std::size_t gpus = setup.cluster.gpus;
  double sum = 0;
  for (std::size_t node = 0; node < setup.cluster.nodes; ++node) {
    const auto first = outcome.gpus.begin() + static_cast<std::ptrdiff_t>(node * gpus);
    const double most = *std::max_element(first, first + static_cast<std::ptrdiff_t>(gpus));
    std::vector<double> loads;
    for (auto it = first; it != first + static_cast<std::ptrdiff_t>(gpus); ++it)
      loads.push_back(most > 0 ? *it / most : 0);
    const double mean = Mean(loads);
    for (const double load : loads) sum += (load - mean) * (load - mean) / static_cast<double>(gpus);
  }
  return sum / static_cast<double>(setup.cluster.nodes);
}

// Of all requests after the warm-up: latency over the deadline of the function.
double TailOfDeadline(const SimulationSetup& setup, const Outcome& outcome) {
  const auto models = AssignModels(setup.cluster, setup.workload.functions);
  std::vector<Duration> shares;  // in billionths of a deadline
  for (const Answer& answer : outcome.answers) {
    if (answer.at < kTorporWarmUp || answer.code != 0) continue;
    const Duration deadline = setup.cluster.models[(*models)[answer.function]].deadline;
    shares.push_back(FromSeconds(ToSeconds(answer.took) / ToSeconds(deadline)));
  }
  return ToSeconds(NearestRank(shares, kTorporPercentile));
}

Summary Summarize(const SimulationSetup& setup, const Outcome& outcome) {
  Summary summary = TorporSummary(setup, outcome);
  summary["load_variance"] = LoadVariance(setup, outcome);
  summary["p98_of_deadline"] = TailOfDeadline(setup, outcome);
  return summary;
}

}  // namespace

absl::StatusOr<std::vector<Figure>> TorporCluster(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(auto inputs, ReadTorporInputs(options.data));
  for (ModelSpec& model : inputs.models)
    model.deadline = std::chrono::milliseconds(model.deadline > std::chrono::milliseconds(100) ? 250 : 150);
  Sweep sweep{.experiment = "torpor-cluster",
              .cases = {},
              .quantities = {{"compliant", ""},
                             {"p98_of_deadline", ""},
                             {"load_variance", ""},
                             {"p98_cv_ms", "ms"},
                             {"p98_bert_ms", "ms"},
                             {"hits", ""},
                             {"computing", ""},
                             {"link", ""}},
              .summarize = &Summarize,
              .paper = {{"1000/torpor/compliant", 1}, {"1000/torpor/p98_of_deadline", 1}}};
  const std::uint32_t minutes = MinutesOf(options, kMinutes);
  for (const std::uint32_t size : SizesOf(options, 400, 2000, 100)) {
    const auto counts = TorporFunctions(inputs.samples, size, minutes);
    for (const std::string& preset :
         PresetsOf(options, {"native", "nonswap", "simple-swap", "torpor", "troupe", "troupe@native"})) {
      auto cluster = TorporNode(inputs.models);
      cluster.nodes = 6;
      if (BindsForGood(preset)) cluster.host_copies = 1;  // one instance of each function
      sweep.cases.push_back({.key = absl::StrCat(size, "/", preset),
                             .baseline = preset == "simple-swap" ? "" : absl::StrCat(size, "/simple-swap"),
                             .setup = [cluster, counts, preset](std::uint64_t seed) {
                               return TorporRun(cluster, counts, Spread::kPoisson, preset, seed);
                             }});
    }
  }
  TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, options));
  return FiguresOf(sweep, values);
}

}  // namespace troupe::sim

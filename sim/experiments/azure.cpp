// A day of the Azure Functions traces (2019, 1,350 functions) on V100s: the functions have the models of
// Torpor's Table 4 in turn. Which share of them meets its SLO, and how many GPU seconds it takes, at 1, 10
// and 50 times the rate. A whole day is hours of wall time for each run: --minutes takes its first minutes.
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "sim/experiments/azure_day.hpp"
#include "sim/experiments/experiment.hpp"
#include "sim/experiments/sweep.hpp"
#include "sim/experiments/torpor_setup.hpp"
#include "sim/traces/generators.hpp"

namespace troupe::sim {

namespace {

constexpr std::uint32_t kGpusOfANode = 4;

}  // namespace

absl::StatusOr<MinuteCounts> ReadAzureDay(const ExperimentOptions& options) {
  const auto path = options.data + "/traces/azure2019/invitro_1350_inv.csv.gz";
  TROUPE_ASSIGN_OR_RETURN(auto trace, ReadTrace(path));
  auto* counts = std::get_if<MinuteCounts>(&trace);
  if (counts == nullptr || counts->minutes() == 0)
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected counts per minute"));
  if (options.most_functions > 0 && options.most_functions < counts->functions.size()) {
    counts->functions.resize(options.most_functions);
    counts->counts.resize(options.most_functions);
  }
  if (options.minutes > 0)
    for (auto& row : counts->counts) row.resize(std::min<std::size_t>(row.size(), options.minutes));
  return std::move(*counts);
}

namespace {

MinuteCounts Times(MinuteCounts counts, std::uint32_t rate) {
  for (auto& row : counts.counts)
    for (auto& count : row) count *= rate;
  return counts;
}

ClusterSpec GpusOf(const std::vector<ModelSpec>& models, std::uint32_t gpus) {
  ClusterSpec cluster = TorporNode(models);
  cluster.nodes = std::max<std::uint32_t>(1, gpus / kGpusOfANode);
  cluster.gpus = std::min(gpus, kGpusOfANode);
  if (cluster.gpus < kGpusOfANode) cluster.topology = {};  // no links between the GPUs, no shared switch
  cluster.host_memory = Bytes(1'000'000'000'000);          // every function has its host copy
  return cluster;
}

// As Torpor's, and what is paid: a GPU's seconds in runs and with loads on their way.
Summary DaySummary(const SimulationSetup& setup, const Outcome& outcome) {
  Summary summary = TorporSummary(setup, outcome);
  const double seconds =
      ToSeconds(outcome.length) * static_cast<double>(setup.cluster.nodes * setup.cluster.gpus);
  summary["paid_gpu_s"] = (outcome.computing + outcome.loading) * seconds;
  summary["mean_ms"] = ToMillis(outcome.MeanLatency());
  return summary;
}

}  // namespace

absl::StatusOr<std::vector<Figure>> AzureDay(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadTorporInputs(options.data));
  TROUPE_ASSIGN_OR_RETURN(const auto day, ReadAzureDay(options));
  const auto rates = options.rates.empty() ? std::vector<std::uint32_t>{1, 10, 50} : options.rates;
  const auto sizes = options.gpus.empty() ? std::vector<std::uint32_t>{1, 2, 4, 8} : options.gpus;
  for (const std::uint32_t gpus : sizes)
    if (gpus > kGpusOfANode && gpus % kGpusOfANode != 0)
      return absl::InvalidArgumentError(absl::StrCat("--gpus: found ", gpus, ", expected at most ",
                                                     kGpusOfANode,
                                                     " or a multiple of that: nodes have so many"));
  Sweep sweep{.experiment = "azure-day",
              .cases = {},
              .quantities = {{"compliant", ""}, {"paid_gpu_s", "s"}, {"mean_ms", "ms"}, {"hits", ""}},
              .summarize = &DaySummary,
              .paper = {}};
  for (const std::uint32_t rate : rates) {
    const auto counts = Times(day, rate);
    for (const std::uint32_t gpus : sizes) {
      const auto cluster = GpusOf(inputs.models, gpus);
      const auto key = absl::StrCat(rate, "x/", gpus, "/");
      for (const std::string& preset :
           PresetsOf(options, {"load-balance", "lalb-o3", "infless-ka", "torpor", "troupe"}))
        sweep.cases.push_back({.key = key + preset,
                               .baseline = preset == "load-balance" ? "" : key + "load-balance",
                               .setup = [cluster, counts, preset](std::uint64_t seed) {
                                 return TorporRun(cluster, counts, Spread::kUniform, preset, seed);
                               }});
    }
  }
  TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, options));
  return FiguresOf(sweep, values);
}

}  // namespace troupe::sim

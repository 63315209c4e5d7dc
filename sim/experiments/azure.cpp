// A day of the Azure Functions traces (2019, 1,350 functions) on V100s: the functions have the models of
// Torpor's Table 4 in turn. Which share of them meets its SLO, and how many GPU seconds it takes, at 1, 10
// and 50 times the rate; and the fewest GPUs, of the numbers that are tried, with which 99 % of them do: a preset that has
// enough is not run with more. Under `troupe` and `fast` functions may own parts of GPUs. A whole day is hours of wall time for
// each run: --minutes takes its first minutes.
#include <algorithm>
#include <map>
#include <utility>

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
constexpr char kBaseline[] = "load-balance";

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

// As many as all nodes can have alike.
std::uint32_t GpusOfEachNode(std::uint32_t gpus) {
  std::uint32_t each = std::min(gpus, kGpusOfANode);
  while (gpus % each != 0) --each;
  return each;
}

ClusterSpec GpusOf(const std::vector<ModelSpec>& models, std::uint32_t gpus) {
  ClusterSpec cluster = TorporNode(models);
  cluster.gpus = GpusOfEachNode(gpus);
  cluster.nodes = gpus / cluster.gpus;
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

absl::StatusOr<SimulationSetup> DayRun(const ClusterSpec& cluster, const MinuteCounts& counts,
                                       const std::string& preset, std::uint64_t seed) {
  TROUPE_ASSIGN_OR_RETURN(auto setup, TorporRun(cluster, counts, Spread::kUniform, preset, seed));
  setup.may_own = preset == "fast" || preset.starts_with("troupe");
  return setup;
}

constexpr double kEnough = 0.99;  // of the functions have to be within their SLO

// The experiment at one rate: the presets that still need more GPUs than were tried, by the seeds that do not.
struct Search {
  const ExperimentOptions& options;
  const std::vector<ModelSpec>& models;
  const MinuteCounts& counts;
  std::uint32_t rate = 1;
  std::vector<std::string> left{};  // presets
  // GPUs by preset, then by seed; 0: more than were tried.
  std::map<std::string, std::vector<double>> needed{};
};

Sweep SweepOf(const Search& search, std::uint32_t gpus) {
  Sweep sweep{.experiment = "azure-day",
              .cases = {},
              .quantities = {{"compliant", ""}, {"paid_gpu_s", "s"}, {"mean_ms", "ms"}, {"hits", ""}},
              .summarize = &DaySummary,
              .paper = {}};
  const auto cluster = GpusOf(search.models, gpus);
  const auto key = absl::StrCat(search.rate, "x/", gpus, "/");
  const bool based = std::ranges::find(search.left, kBaseline) != search.left.end();
  for (const std::string& preset : search.left)
    sweep.cases.push_back({.key = key + preset,
                           .baseline = based && preset != kBaseline ? absl::StrCat(key, kBaseline) : "",
                           .setup = [cluster, &counts = search.counts, preset](std::uint64_t seed) {
                             return DayRun(cluster, counts, preset, seed);
                           }});
  return sweep;
}

// Notes for which seeds these are GPUs enough, and drops the presets that have enough with each.
void Look(Search& search, std::uint32_t gpus, const Sweep& sweep, const SweepValues& values) {
  for (std::size_t i = 0; i < sweep.cases.size(); ++i) {
    const auto of = values.find(sweep.cases[i].key);
    if (of == values.end()) continue;  // the experiment was ended
    const auto& compliant = of->second.at("compliant");
    auto& needed = search.needed[search.left[i]];
    needed.resize(compliant.size());
    for (std::size_t seed = 0; seed < compliant.size(); ++seed)
      if (needed[seed] == 0 && compliant[seed] >= kEnough) needed[seed] = gpus;
  }
  std::erase_if(search.left, [&](const std::string& preset) {
    const auto of = search.needed.find(preset);
    return of != search.needed.end() && std::ranges::find(of->second, 0.0) == of->second.end();
  });
}

absl::StatusOr<std::vector<Figure>> SearchAtRate(Search search, const std::vector<std::uint32_t>& sizes) {
  std::vector<Figure> figures;
  for (const std::uint32_t gpus : sizes) {
    if (search.left.empty()) break;
    const Sweep sweep = SweepOf(search, gpus);
    TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, search.options));
    for (auto& figure : FiguresOf(sweep, values)) figures.push_back(std::move(figure));
    Look(search, gpus, sweep, values);
  }
  for (const auto& [preset, needed] : search.needed)
    if (std::ranges::find(search.left, preset) == search.left.end())
      figures.push_back({.name = absl::StrCat("azure-day/", search.rate, "x/", preset, "/gpus_needed"),
                         .unit = "GPUs",
                         .values = needed});
  return figures;
}

}  // namespace

absl::StatusOr<std::vector<Figure>> AzureDay(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadTorporInputs(options.data));
  TROUPE_ASSIGN_OR_RETURN(const auto day, ReadAzureDay(options));
  const auto rates = options.rates.empty() ? std::vector<std::uint32_t>{1, 10, 50} : options.rates;
  auto sizes =
      options.gpus.empty() ? std::vector<std::uint32_t>{1, 2, 3, 4, 6, 8, 12, 16, 24, 32} : options.gpus;
  for (const std::uint32_t gpus : sizes)
    if (gpus > 1 && GpusOfEachNode(gpus) == 1)
      return absl::InvalidArgumentError(absl::StrCat("--gpus: found ", gpus,
                                                     ", expected a number that nodes of two to ",
                                                     kGpusOfANode, " GPUs add up to"));
  std::ranges::sort(sizes);
  std::vector<Figure> figures;
  for (const std::uint32_t rate : rates) {
    const auto counts = Times(day, rate);
    Search search{.options = options, .models = inputs.models, .counts = counts, .rate = rate};
    search.left =
        PresetsOf(options, {kBaseline, "lalb-o3", "infless-ka", "torpor", "fast", "troupe-late", "troupe"});
    TROUPE_ASSIGN_OR_RETURN(const auto of_rate, SearchAtRate(std::move(search), sizes));
    figures.insert(figures.end(), of_rate.begin(), of_rate.end());
  }
  return figures;
}

}  // namespace troupe::sim

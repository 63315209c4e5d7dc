// Torpor with one or two models (002, 7.2 and Fig. 12): functions of few requests on one GPU, functions of
// many requests on four, and what the choice of victims does for a heavy model.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "sim/experiments/experiment.hpp"
#include "sim/experiments/torpor_setup.hpp"

namespace troupe::sim {

namespace {

constexpr std::uint32_t kMinutes = 10;

ModelSpec Find(const TorporInputs& inputs, const std::string& name) {
  return *std::ranges::find(inputs.models, name, &ModelSpec::name);
}

// Functions of one model, each with as many requests in every minute.
MinuteCounts Alike(const std::string& model, std::uint32_t functions, std::uint32_t rate,
                   std::uint32_t minutes) {
  MinuteCounts counts;
  for (std::uint32_t i = 0; i < functions; ++i) {
    counts.functions.push_back({.name = absl::StrCat(model, ".", i), .model = model});
    counts.counts.emplace_back(minutes, rate);
  }
  return counts;
}

std::vector<Duration> Latencies(const SimulationSetup& setup, const Outcome& outcome,
                                const std::string& model) {
  std::vector<Duration> took;
  for (const Answer& answer : outcome.answers)
    if (answer.at >= kTorporWarmUp && setup.workload.functions[answer.function].model == model)
      took.push_back(answer.code == 0 ? answer.took : setup.cluster.timeout);
  return took;
}

}  // namespace

// As many functions as keep one GPU busy for four fifths of its time when each run swaps its model in. A
// runtime of its own leaves room for a twentieth of the GPU's memory each: the throughput of those is the
// baseline.
absl::StatusOr<std::vector<Figure>> TorporEfficiency(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadTorporInputs(options.data));
  const ModelSpec model = Find(inputs, "ResNet-152");
  const double per_minute = 0.8 * 60 / ToSeconds(model.times.swapped);
  Sweep sweep{.experiment = "torpor-efficiency",
              .cases = {},
              .quantities = {{"served_per_minute", ""},
                             {"p98_ms", "ms"},
                             {"executed_functions", ""},
                             {"computing", ""}},
              .summarize =
                  [](const SimulationSetup& setup, const Outcome& outcome) {
                    Summary summary = TorporSummary(setup, outcome);
                    auto served = ServedLatencies(outcome);  // in Native some requests never are
                    summary["served_per_minute"] =
                        static_cast<double>(outcome.served) * 60 / ToSeconds(setup.workload.length);
                    summary["p98_ms"] = 1e3 * ToSeconds(NearestRank(served, kTorporPercentile));
                    return summary;
                  },
              .paper = {}};
  for (const std::uint32_t rate : {80, 40, 20, 10}) {
    const auto functions = static_cast<std::uint32_t>(per_minute / rate);
    const auto counts = Alike(model.name, functions, rate, MinutesOf(options, kMinutes));
    for (const std::string& preset : PresetsOf(options, {"native", "torpor", "troupe", "troupe@native"})) {
      sweep.cases.push_back({.key = absl::StrCat(rate, "/", preset),
                             .baseline = preset == "native" ? "" : absl::StrCat(rate, "/native"),
                             .setup = [&inputs, counts, preset](std::uint64_t seed) {
                               auto cluster = TorporNode(inputs.models);
                               cluster.gpus = 1;
                               cluster.topology = {};
                               return TorporRun(std::move(cluster), counts, Spread::kEven, preset, seed);
                             }});
    }
  }
  TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, options));
  return FiguresOf(sweep, values);
}

absl::StatusOr<std::vector<Figure>> TorporBalance(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadTorporInputs(options.data));
  const std::string model = "ResNet-152";
  Sweep sweep{.experiment = "torpor-balance",
              .cases = {},
              .quantities = {{"p98_ms", "ms"}, {"least_of_most_loaded", ""}, {"computing", ""}},
              .summarize =
                  [model](const SimulationSetup& setup, const Outcome& outcome) {
                    Summary summary = TorporSummary(setup, outcome);
                    auto took = Latencies(setup, outcome, model);
                    summary["p98_ms"] = 1e3 * ToSeconds(NearestRank(took, kTorporPercentile));
                    const auto [least, most] = std::ranges::minmax(outcome.gpus);
                    summary["least_of_most_loaded"] = most > 0 ? least / most : 0;
                    return summary;
                  },
              .paper = {{"200/torpor/p98_ms", 35}}};
  const auto counts = ScaledFunctions(inputs.samples, model, 40, 200, MinutesOf(options, kMinutes));
  for (const std::string& preset : PresetsOf(options, {"native", "torpor", "troupe", "troupe@native"}))
    sweep.cases.push_back({.key = "200/" + preset,
                           .baseline = preset == "native" ? "" : "200/native",
                           .setup = [&inputs, counts, preset](std::uint64_t seed) {
                             return TorporRun(TorporNode(inputs.models), counts, Spread::kPoisson, preset,
                                              seed);
                           }});
  TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, options));
  return FiguresOf(sweep, values);
}

// The paper says that Bert-qa has 60 % of the bytes; 600 functions, so that all of them are a tenth more than
// the GPUs hold, are ours.
absl::StatusOr<std::vector<Figure>> TorporHeaviness(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadTorporInputs(options.data));
  const std::string light = "DenseNet-201";
  const std::string heavy = "Bert-qa";
  const double light_bytes = static_cast<double>(Find(inputs, light).memory.count());
  const double heavy_bytes = static_cast<double>(Find(inputs, heavy).memory.count());
  Sweep sweep{.experiment = "torpor-heaviness", .cases = {}, .quantities = {}, .summarize = {}, .paper = {}};
  for (const std::string& model : {light, heavy})
    for (const int percentile : {90, 98})
      sweep.quantities.push_back({absl::StrCat(model, "_p", percentile, "_ms"), "ms"});
  for (const char* name : {"compliant", "hits", "computing", "link"}) sweep.quantities.push_back({name, ""});
  sweep.summarize = [light, heavy](const SimulationSetup& setup, const Outcome& outcome) {
    Summary summary = TorporSummary(setup, outcome);
    for (const std::string& model : {light, heavy})
      for (const int percentile : {90, 98}) {
        auto took = Latencies(setup, outcome, model);
        summary[absl::StrCat(model, "_p", percentile, "_ms")] =
            1e3 * ToSeconds(NearestRank(took, percentile));
      }
    return summary;
  };
  for (const std::uint32_t size : SizesOf(options, 600, 600, 40)) {
    // heavy x bytes : light x bytes = 60 : 40
    const double heavy_to_light = 0.6 * light_bytes / (0.4 * heavy_bytes);
    const auto heavies = static_cast<std::uint32_t>(size * heavy_to_light / (1 + heavy_to_light));
    MinuteCounts counts = TorporFunctions(inputs.samples, size, MinutesOf(options, kMinutes));
    for (std::uint32_t i = 0; i < size; ++i)
      counts.functions[i].model = (i + 1) * heavies / size > i * heavies / size ? heavy : light;
    for (const std::string& preset : PresetsOf(options, {"torpor-lru", "torpor", "troupe", "troupe@native"}))
      sweep.cases.push_back({.key = absl::StrCat(size, "/", preset),
                             .baseline = preset == "torpor-lru" ? "" : absl::StrCat(size, "/torpor-lru"),
                             .setup = [&inputs, counts, preset](std::uint64_t seed) {
                               return TorporRun(TorporNode(inputs.models), counts, Spread::kPoisson, preset,
                                                seed);
                             }});
  }
  TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, options));
  return FiguresOf(sweep, values);
}

}  // namespace troupe::sim

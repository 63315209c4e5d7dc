// What a function costs its user (002, 8): by the time that it is kept running on a GPU of its own, as before Torpor,
// or by the time that its requests took and a part of it for the memory of the host.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "sim/experiments/experiment.hpp"
#include "sim/experiments/torpor_setup.hpp"

namespace troupe::sim {

namespace {

constexpr std::uint32_t kMinutes = 30;
constexpr std::uint32_t kFunctions = 60;
constexpr const char* kModel = "Bert-qa";
// Of the price of a GPU, while a function is inactive (002, 8).
constexpr double kInactive = 0.1;
constexpr double kMinutesOfADay = 24 * 60;

// Costs are shares of a GPU's price. `cost`: as Torpor bills, all of the GPU while a request runs or its model is
// loaded, and kInactive of it else. `metered_cost`: as `troupe usage` does with a price book of `host_percent: 10`:
// runs, and the model's bytes in the host's memory at a tenth of what as much of the GPU's costs.
Summary CostSummary(const SimulationSetup& setup, const Outcome& outcome) {
  const ModelSpec& model = setup.cluster.models.front();
  const double seconds =
      static_cast<double>(setup.workload.functions.size()) * ToSeconds(setup.workload.length);
  const double running = static_cast<double>(outcome.served) * ToSeconds(model.times.run);
  const double loading = static_cast<double>(outcome.swaps) * ToSeconds(model.times.load);
  const double latency = static_cast<double>(outcome.served) * ToSeconds(outcome.MeanLatency());
  const double busy = (running + loading) / seconds;
  const double memory =
      static_cast<double>(model.memory.count()) / static_cast<double>(setup.cluster.gpu_memory.count());
  auto took = ServedLatencies(outcome);
  Summary summary = {{"cost", busy + kInactive * (1 - busy)},
                     {"metered_cost", running / seconds + kInactive * memory},
                     {"loading_of_latency", latency > 0 ? loading / latency : 0},
                     {"p50_ms", 1e3 * ToSeconds(NearestRank(took, 50))},
                     {"p98_ms", 1e3 * ToSeconds(NearestRank(took, kTorporPercentile))},
                     {"functions_of_a_gpu", static_cast<double>(setup.workload.functions.size()) /
                                                static_cast<double>(outcome.gpus.size())}};
  // A function that keeps its GPU pays for all of its time, and has no loads.
  if (setup.runtimes) summary["cost"] = summary["metered_cost"] = 1;
  return summary;
}

}  // namespace

absl::StatusOr<std::vector<Figure>> TorporCost(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadTorporInputs(options.data));
  TROUPE_ASSIGN_OR_RETURN(auto models, ReadPilotModels(options.data));
  std::erase_if(models, [](const ModelSpec& model) { return model.name != kModel; });
  if (models.empty())
    return absl::InvalidArgumentError(
        absl::StrCat(options.data, "/papers/torpor_table1.csv: expected a line for ", kModel));
  Sweep sweep{.experiment = "torpor-cost",
              .cases = {},
              .quantities = {{"cost", ""},
                             {"metered_cost", ""},
                             {"loading_of_latency", ""},
                             {"p50_ms", "ms"},
                             {"p98_ms", "ms"},
                             {"functions_of_a_gpu", ""}},
              .summarize = CostSummary,
              .paper = {{"3000/torpor/cost", 0.16}, {"3000/torpor/loading_of_latency", 0.30}}};
  const std::uint32_t minutes = MinutesOf(options, kMinutes);
  for (const std::uint32_t rate : {1000, 3000, 6000}) {
    for (const std::string& preset : PresetsOf(options, {"native", "torpor", "troupe"})) {
      // A GPU of its own for each function: one such function, and one GPU.
      const bool own = preset == "native";
      const auto counts =
          ScaledFunctions(inputs.samples, kModel, own ? 1 : kFunctions, rate / kMinutesOfADay, minutes);
      sweep.cases.push_back({.key = absl::StrCat(rate, "/", preset),
                             .baseline = own ? "" : absl::StrCat(rate, "/native"),
                             .setup = [models, counts, preset, own](std::uint64_t seed) {
                               auto cluster = TorporNode(models);
                               if (own) {
                                 cluster.gpus = 1;
                                 cluster.topology = {};
                               }
                               return TorporRun(std::move(cluster), counts, Spread::kPoisson, preset, seed);
                             }});
    }
  }
  TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, options));
  return FiguresOf(sweep, values);
}

}  // namespace troupe::sim

// Torpor on one node (002, 7.3): its baselines at 160 functions, its policies at 320 to 800, its order of
// functions at tighter deadlines. 31 minutes of the trace (the comparison with the baselines: ten), arrivals
// at even distances, as the released generator spaces them, and as a Poisson process.
#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "sim/experiments/experiment.hpp"
#include "sim/experiments/torpor_setup.hpp"

namespace troupe::sim {

namespace {

constexpr std::uint32_t kMinutes = 31;
constexpr std::array<std::pair<const char*, Spread>, 2> kArrivals = {
    {{"even", Spread::kEven}, {"poisson", Spread::kPoisson}}};

const std::vector<SweepQuantity>& Quantities() {
  static const std::vector<SweepQuantity> kAll = {
      {"compliant", ""},     {"late_cv", ""},   {"late_bert", ""}, {"p98_cv_ms", "ms"},
      {"p98_bert_ms", "ms"}, {"hits", ""},      {"host_cv", ""},   {"peer_cv", ""},
      {"host_bert", ""},     {"peer_bert", ""}, {"computing", ""}, {"link", ""}};
  return kAll;
}

// What a case puts on Torpor's node.
struct Load {
  std::vector<ModelSpec> models;
  MinuteCounts counts;
  Spread spread;
};

// A case for each preset under one load; all but `baseline` are compared with it.
void AddPresets(Sweep& sweep, const std::string& key, const std::vector<std::string>& presets,
                const std::string& baseline, const Load& load) {
  for (const std::string& preset : presets)
    sweep.cases.push_back({.key = key + preset,
                           .baseline = preset == baseline ? "" : key + baseline,
                           .setup = [load, preset](std::uint64_t seed) {
                             return TorporRun(TorporNode(load.models), load.counts, load.spread, preset,
                                              seed);
                           }});
}

// The largest size up to which all sizes have all functions compliant, in every seed; zero: not even the
// first.
Figure Largest(const std::string& experiment, const SweepValues& values, const std::string& rest,
               const std::vector<std::uint32_t>& sizes, std::optional<double> paper) {
  double largest = 0;
  for (const std::uint32_t size : sizes) {
    const auto of = values.find(absl::StrCat(size, "/", rest));
    if (of == values.end()) break;
    const auto& shares = of->second.at("compliant");
    if (*std::ranges::min_element(shares) < kAllCompliant) break;
    largest = size;
  }
  return {.name = absl::StrCat(experiment, "/largest/", rest, "/functions"),
          .unit = "",
          .values = {largest},
          .paper = paper,
          .baseline = rest.ends_with("/troupe") || rest.ends_with("/troupe@native")
                          ? absl::StrCat(experiment, "/largest/", rest.substr(0, rest.rfind('/')),
                                         "/torpor/functions")
                          : ""};
}

}  // namespace

absl::StatusOr<std::vector<Figure>> TorporPolicies(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadTorporInputs(options.data));
  const auto presets = PresetsOf(options, {"torpor", "torpor-fifo", "torpor-random", "torpor-lru",
                                           "torpor-block", "troupe", "troupe@native"});
  const auto sizes = SizesOf(options, 320, 800, 40);
  Sweep sweep{.experiment = "torpor-policies",
              .cases = {},
              .quantities = Quantities(),
              .summarize = &TorporSummary,
              .paper = {}};
  for (const auto& [arrivals, spread] : kArrivals) {
    for (const std::uint32_t size : sizes) {
      const auto counts = TorporFunctions(inputs.samples, size, MinutesOf(options, kMinutes));
      AddPresets(sweep, absl::StrCat(size, "/", arrivals, "/"), presets, "torpor",
                 Load{inputs.models, counts, spread});
    }
    sweep.paper[absl::StrCat("480/", arrivals, "/torpor/compliant")] = 1;
    sweep.paper[absl::StrCat("560/", arrivals, "/torpor/compliant")] = 0.8;  // "over 80 %"
  }
  TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, options));
  auto figures = FiguresOf(sweep, values);
  for (const auto& [arrivals, spread] : kArrivals)
    for (const std::string& preset : presets)
      figures.push_back(Largest(sweep.experiment, values, absl::StrCat(arrivals, "/", preset), sizes,
                                preset == "torpor" ? std::optional(480.0) : std::nullopt));
  return figures;
}

absl::StatusOr<std::vector<Figure>> TorporOneNode(const ExperimentOptions& options) {
  constexpr std::uint32_t kTenMinutes = 10;
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadTorporInputs(options.data));
  const auto presets = PresetsOf(options, {"native", "infless-ka", "torpor", "troupe", "troupe@native"});
  Sweep sweep{.experiment = "torpor-node",
              .cases = {},
              .quantities = {{"executed_functions", ""}, {"compliant_functions", ""}, {"computing", ""}},
              .summarize = &TorporSummary,
              .paper = {}};
  for (const auto& [arrivals, spread] : kArrivals) {
    for (const std::uint32_t size : SizesOf(options, 160, 160, 40)) {
      const auto counts = TorporFunctions(inputs.samples, size, MinutesOf(options, kTenMinutes));
      AddPresets(sweep, absl::StrCat(size, "/", arrivals, "/"), presets, "native",
                 Load{inputs.models, counts, spread});
    }
    sweep.paper[absl::StrCat("160/", arrivals, "/native/executed_functions")] = 72;
    sweep.paper[absl::StrCat("160/", arrivals, "/infless-ka/executed_functions")] = 112;
    sweep.paper[absl::StrCat("160/", arrivals, "/infless-ka/compliant_functions")] = 7;
    sweep.paper[absl::StrCat("160/", arrivals, "/torpor/executed_functions")] = 160;
    sweep.paper[absl::StrCat("160/", arrivals, "/torpor/compliant_functions")] = 160;
  }
  TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, options));
  return FiguresOf(sweep, values);
}

// The deadline of Bert-qa stays: 60 ms are less than its swap takes.
absl::StatusOr<std::vector<Figure>> TorporDeadlines(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadTorporInputs(options.data));
  Sweep sweep{.experiment = "torpor-deadlines",
              .cases = {},
              .quantities = Quantities(),
              .summarize = &TorporSummary,
              .paper = {}};
  const auto presets = PresetsOf(options, {"torpor-fifo", "torpor", "troupe", "troupe@native"});
  for (const auto& [arrivals, spread] : kArrivals) {
    for (const int deadline : {60, 65, 70, 75, 80}) {
      auto models = inputs.models;
      for (ModelSpec& model : models)
        if (model.deadline == std::chrono::milliseconds(80))
          model.deadline = std::chrono::milliseconds(deadline);
      for (const std::uint32_t size : SizesOf(options, 560, 560, 40)) {
        const auto counts = TorporFunctions(inputs.samples, size, MinutesOf(options, kMinutes));
        AddPresets(sweep, absl::StrCat(deadline, "/", size, "/", arrivals, "/"), presets, "torpor-fifo",
                   Load{models, counts, spread});
      }
    }
  }
  TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, options));
  return FiguresOf(sweep, values);
}

}  // namespace troupe::sim

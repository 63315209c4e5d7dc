// The experiments of LALB (003, V): 12 GPUs of 8 GiB behind one scheduler, the models of Table I, six minutes
// of the most asked functions. A load is atomic and occupies its GPU, for every preset alike; troupe+overlap
// is the same cluster where a load goes on beneath a run.
#include <algorithm>
#include <array>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "sim/experiments/experiment.hpp"
#include "sim/experiments/lalb_setup.hpp"

namespace troupe::sim {

namespace {

constexpr const char* kBaseline = "load-balance";

struct Variant {
  const char* name;
  const char* preset;
  LoadMode loads = LoadMode::kAtomic;
};
constexpr std::array<Variant, 5> kVariants = {{{"load-balance", "load-balance"},
                                               {"lalb", "lalb"},
                                               {"lalb-o3", "lalb-o3"},
                                               {"troupe", "troupe"},
                                               {"troupe+overlap", "troupe", LoadMode::kOverlapped}}};

// One quantity of a run, and what 003 says of it: reductions against load-balance, in percent.
struct Quantity {
  const char* experiment;
  const char* name;
  const char* unit;
  double (*of)(const Outcome&);
  std::map<std::string, double> reductions{};  // by "15/lalb"
};

const std::vector<Quantity>& Quantities() {
  static const std::vector<Quantity> kAll = {
      {"lalb-latency",
       "mean_s",
       "s",
       [](const Outcome& outcome) { return ToSeconds(outcome.MeanLatency()); },
       {{"15/lalb", 97.74}, {"25/lalb", 93.33}, {"35/lalb", 79.43}, {"35/lalb-o3", 96.93}}},
      {"lalb-misses",
       "per_request",
       "",
       [](const Outcome& outcome) { return outcome.MissRatio(); },
       {{"15/lalb", 94.11}, {"35/lalb", 65.21}, {"35/lalb-o3", 81.16}}},
      {"lalb-misses", "loads_per_request", "",
       [](const Outcome& outcome) { return outcome.LoadsPerRequest(); }},
      {"lalb-false-misses",
       "of_loads",
       "",
       [](const Outcome& outcome) {
         return outcome.swaps == 0
                    ? 0
                    : static_cast<double>(outcome.false_misses) / static_cast<double>(outcome.swaps);
       },
       {{"15/lalb", 34.38}, {"15/lalb-o3", 35.41}, {"35/lalb-o3", 3.65}}},
      {"lalb-duplicates",
       "gpus",
       "",
       [](const Outcome& outcome) { return outcome.duplicates; },
       {{"15/lalb", 48.96}, {"15/lalb-o3", 49.48}, {"35/lalb", 35.32}, {"35/lalb-o3", 33.47}}},
      {"lalb-utilization", "computing", "", [](const Outcome& outcome) { return outcome.computing; }}};
  return kAll;
}

// 1 - ours / baseline, seed by seed, in percent.
std::vector<double> Reductions(const std::vector<double>& ours, const std::vector<double>& baseline) {
  std::vector<double> out;
  for (std::size_t i = 0; i < std::min(ours.size(), baseline.size()); ++i)
    out.push_back(baseline[i] == 0 ? 0 : 100 * (1 - ours[i] / baseline[i]));
  return out;
}

// By "lalb-misses/per_request", then "15/lalb": a value a seed.
using Values = std::map<std::string, std::map<std::string, std::vector<double>>>;
std::string NameOf(const Quantity& quantity) {
  return absl::StrCat(quantity.experiment, "/", quantity.name);
}

std::vector<Figure> FiguresOf(const Values& values, const std::string& only) {
  std::vector<Figure> figures;
  for (const Quantity& quantity : Quantities()) {
    if (!only.empty() && only != quantity.experiment) continue;
    const auto of = values.find(NameOf(quantity));
    if (of == values.end()) continue;
    for (const int working_set : kWorkingSets) {
      const auto base = absl::StrCat(working_set, "/", kBaseline);
      for (const Variant& variant : kVariants) {
        const auto key = absl::StrCat(working_set, "/", variant.name);
        const auto it = of->second.find(key);
        if (it == of->second.end()) continue;
        const auto name = absl::StrCat(quantity.experiment, "/", key, "/");
        const bool ours = std::string_view(variant.preset) == "troupe";
        const auto beside = absl::StrCat(quantity.experiment, "/", working_set, "/",
                                         ours ? "lalb-o3" : kBaseline, "/", quantity.name);
        figures.push_back({.name = absl::StrCat(name, quantity.name),
                           .unit = quantity.unit,
                           .values = it->second,
                           .paper = {},
                           .baseline = key == base ? "" : beside});
        const auto paper = quantity.reductions.find(key);
        if (paper == quantity.reductions.end()) continue;
        figures.push_back({.name = absl::StrCat(name, "reduction"),
                           .unit = "%",
                           .values = Reductions(it->second, of->second.at(base)),
                           .paper = paper->second,
                           .baseline = {}});
      }
    }
  }
  return figures;
}

absl::StatusOr<std::vector<Figure>> RunAll(const ExperimentOptions& options, const std::string& only) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadLalbInputs(options));
  Values values;
  for (const int working_set : kWorkingSets) {
    for (const Variant& variant : kVariants) {
      TROUPE_ASSIGN_OR_RETURN(const auto policies, FindPreset(variant.preset));
      for (std::uint64_t seed = 1; seed <= options.seeds; ++seed) {
        const auto what = absl::StrCat(working_set, "/", variant.name, ", seed ", seed);
        if (options.go_on && !options.go_on(what)) return FiguresOf(values, only);
        TROUPE_ASSIGN_OR_RETURN(const auto outcome,
                                RunLalb(inputs, working_set, {variant.name, variant.loads}, policies, seed));
        for (const Quantity& quantity : Quantities())
          values[NameOf(quantity)][absl::StrCat(working_set, "/", variant.name)].push_back(
              quantity.of(outcome));
      }
    }
  }
  return FiguresOf(values, only);
}

double LatencyVariance(const Outcome& outcome) {
  const double mean = ToSeconds(outcome.MeanLatency());
  double sum = 0;
  for (const Answer& answer : outcome.answers)
    if (answer.code == 0) sum += (ToSeconds(answer.took) - mean) * (ToSeconds(answer.took) - mean);
  return outcome.served == 0 ? 0 : sum / static_cast<double>(outcome.served);
}

}  // namespace

absl::StatusOr<std::vector<Figure>> Lalb(const ExperimentOptions& options) {
  return RunAll(options, "");
}
absl::StatusOr<std::vector<Figure>> LalbLatency(const ExperimentOptions& options) {
  return RunAll(options, "lalb-latency");
}
absl::StatusOr<std::vector<Figure>> LalbMisses(const ExperimentOptions& options) {
  return RunAll(options, "lalb-misses");
}
absl::StatusOr<std::vector<Figure>> LalbFalseMisses(const ExperimentOptions& options) {
  return RunAll(options, "lalb-false-misses");
}
absl::StatusOr<std::vector<Figure>> LalbDuplicates(const ExperimentOptions& options) {
  return RunAll(options, "lalb-duplicates");
}
absl::StatusOr<std::vector<Figure>> LalbUtilization(const ExperimentOptions& options) {
  return RunAll(options, "lalb-utilization");
}

// The presets of the paper on one node of 12 GPUs, and on nodes of fewer.
absl::StatusOr<std::vector<Figure>> LalbNodes(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadLalbInputs(options));
  std::vector<Figure> figures;
  for (const int working_set : kWorkingSets) {
    for (const char* preset : {"load-balance", "lalb", "lalb-o3"}) {
      TROUPE_ASSIGN_OR_RETURN(const auto policies, FindPreset(preset));
      for (const std::uint32_t nodes : {1U, 4U, 12U}) {
        const auto name = absl::StrCat(preset, "@", nodes);
        Figure figure{.name = absl::StrCat("lalb-nodes/", working_set, "/", name, "/mean_s"),
                      .unit = "s",
                      .values = {},
                      .paper = {},
                      .baseline = {}};
        if (nodes > 1) figure.baseline = absl::StrCat("lalb-nodes/", working_set, "/", preset, "@1/mean_s");
        for (std::uint64_t seed = 1; seed <= options.seeds; ++seed) {
          if (options.go_on && !options.go_on(absl::StrCat(working_set, "/", name, ", seed ", seed)))
            return figures;
          TROUPE_ASSIGN_OR_RETURN(
              const auto outcome,
              RunLalb(inputs, working_set, {.name = name, .nodes = nodes}, policies, seed));
          figure.values.push_back(ToSeconds(outcome.MeanLatency()));
        }
        figures.push_back(std::move(figure));
      }
    }
  }
  return figures;
}

// At the largest working set: latency, misses and variance by the limit.
absl::StatusOr<std::vector<Figure>> LalbO3Sweep(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadLalbInputs(options));
  TROUPE_ASSIGN_OR_RETURN(auto policies, FindPreset("lalb-o3"));
  std::vector<Figure> figures;
  std::map<std::string, std::vector<double>> first;  // at limit 0
  for (int limit = 0; limit <= 45; limit += 5) {
    policies.gpu = policies.routing = absl::StrCat("lalb-o3=", limit);
    std::map<std::string, std::vector<double>> of;
    for (std::uint64_t seed = 1; seed <= options.seeds; ++seed) {
      if (options.go_on && !options.go_on(absl::StrCat("limit ", limit, ", seed ", seed))) return figures;
      TROUPE_ASSIGN_OR_RETURN(const auto outcome, RunLalb(inputs, 35, {"lalb-o3"}, policies, seed));
      of["mean_s"].push_back(ToSeconds(outcome.MeanLatency()));
      of["misses_per_request"].push_back(outcome.MissRatio());
      of["variance_s2"].push_back(LatencyVariance(outcome));
    }
    if (limit == 0) first = of;
    static const std::map<std::string, double> kPaper = {
        {"mean_s", 85.1}, {"misses_per_request", 45.83}, {"variance_s2", 95.93}};
    for (const auto& [name, values] : of) {
      figures.push_back({.name = absl::StrCat("lalb-o3-sweep/", limit, "/", name),
                         .unit = {},
                         .values = values,
                         .paper = {},
                         .baseline = limit == 0 ? "" : absl::StrCat("lalb-o3-sweep/0/", name)});
      if (limit == 45)
        figures.push_back({.name = absl::StrCat("lalb-o3-sweep/45/", name, "_reduction"),
                           .unit = "%",
                           .values = Reductions(values, first.at(name)),
                           .paper = kPaper.at(name),
                           .baseline = {}});
    }
  }
  return figures;
}

}  // namespace troupe::sim

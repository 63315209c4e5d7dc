// The experiments of StreamBox (004, section 9): its three workflows on V100s of 16 GB, under its baselines'
// sandboxes and its own, and ours in its runtimes (sim/sandbox.hpp). The paper prints no times of its models:
// those of Torpor's Table 4 stand for them, for a request of its own (no batches). Without the language
// models: a runtime of a function has half a gigabyte there, which they do not fit in.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "sim/experiments/experiment.hpp"
#include "sim/experiments/sweep.hpp"
#include "sim/experiments/torpor_setup.hpp"
#include "sim/presets.hpp"
#include "sim/traces/generators.hpp"

namespace troupe::sim {

namespace {

constexpr Duration kSlo = std::chrono::milliseconds(200);  // 9.1
constexpr Duration kTimeout = std::chrono::seconds(10);    // more than the start of a runtime takes
// The paper counts what has not timed out, and does not say when that is: counted are also what is there
// within the SLO, and within a little more.
struct TimeOut {
  const char* served;  // the quantity
  const char* times;   // of it, beside a baseline
  Duration limit;
};
constexpr std::array<TimeOut, 4> kTimeOuts = {
    {{"served_per_s", "times", Duration::max()},  // each step within kTimeout
     {"in_400ms_per_s", "times_in_400ms", std::chrono::milliseconds(400)},
     {"in_300ms_per_s", "times_in_300ms", std::chrono::milliseconds(300)},
     {"in_time_per_s", "times_in_time", kSlo}}};
constexpr Bytes kGpuMemory(16'000'000'000);
constexpr Bytes kActivations(200'000'000);  // the unit by which the pool grows (5.2)
constexpr Bytes kPassed(125'000'000 / 16);  // 3.1: 125 MB for a batch of 16
constexpr std::uint32_t kMinutes = 10;
constexpr std::uint32_t kWorkflowsOfAGpu = 9;  // 24 functions, where 20 run at a time
// Workflows a second of each GPU: in bursts of ten times the rate as much as a GPU can compute.
constexpr double kRate = 2;
constexpr double kSaturated = 40;  // and this is twice that, all the time: what is served is what a GPU can
constexpr double kSkew = 1;        // the k-th workflow is asked for 1/k as often as the first

// Fig. 11: the first function, and those that its answer brings, all at once.
struct WorkflowShape {
  const char* name;
  const char* first;
  std::vector<const char*> then;
};
const std::vector<WorkflowShape>& Shapes() {
  static const std::vector<WorkflowShape> kShapes = {
      {"traffic", "EfficientNet", {"ResNet-50", "ResNet-101", "Inception-v3"}},
      {"image", "ResNet-101", {"DenseNet-169"}},
      {"social", "Inception-v3", {"ResNet-152"}}};
  return kShapes;
}

// Adds the functions of one workflow; the place of its first.
std::uint32_t Add(const WorkflowShape& shape, const std::string& name, const std::string& user,
                  std::vector<TraceFunction>& functions) {
  const auto first = static_cast<std::uint32_t>(functions.size());
  functions.push_back({.name = absl::StrCat(name, "-", shape.name),
                       .model = shape.first,
                       .tenant = user,
                       .then = {},
                       .passes = kPassed});
  for (const char* model : shape.then) {
    functions[first].then.push_back(static_cast<std::uint32_t>(functions.size()));
    functions.push_back({.name = absl::StrCat(functions[first].name, "-", functions.size() - first),
                         .model = model,
                         .tenant = user});
  }
  return first;
}

struct Load {
  Shape shape = Shape::kPoisson;
  double rate = 0;  // workflows a second
  std::uint32_t minutes = kMinutes;
  std::uint32_t workflows = 0;
  std::uint32_t users = 1;
  bool traffic_only = false;
};

Workload Make(const Load& load, std::uint64_t seed) {
  Random random(seed);
  const MadeWorkload made{.shape = load.shape,
                          .functions = load.workflows,
                          .rate = load.rate,
                          .length = std::chrono::minutes(load.minutes),
                          .skew = kSkew};
  Workload workload = MakeWorkload(made, random);
  workload.functions.clear();
  std::vector<std::uint32_t> firsts;
  for (std::uint32_t i = 0; i < load.workflows; ++i)
    firsts.push_back(Add(Shapes()[load.traffic_only ? 0 : i % Shapes().size()], absl::StrCat("w", i),
                         absl::StrCat("user-", i % load.users), workload.functions));
  for (Arrival& arrival : workload.arrivals) arrival.function = firsts[arrival.function];
  return workload;
}

ClusterSpec Nodes(const std::vector<ModelSpec>& models, std::uint32_t nodes) {
  ClusterSpec cluster;
  cluster.nodes = nodes;
  cluster.gpu_memory = kGpuMemory;
  cluster.host_memory = GiB(128);
  cluster.timeout = kTimeout;
  for (const ModelSpec& model : models) {
    if (model.name == "Bert-qa") continue;
    cluster.models.push_back(model);
    cluster.models.back().times.swapped = {};  // by the link
    cluster.models.back().activations = kActivations;
    cluster.models.back().deadline = kSlo / 2;  // of each of two steps
  }
  return cluster;
}

absl::StatusOr<SimulationSetup> SetupOf(ClusterSpec cluster, const Load& load, const std::string& preset,
                                        std::uint64_t seed) {
  SimulationSetup setup;
  TROUPE_ASSIGN_OR_RETURN(const auto chosen, FindSimPreset(preset));
  setup.policies = chosen.policies;
  setup.sandbox = chosen.sandbox;
  if (setup.sandbox && setup.sandbox->isolation == proto::ISOLATION_TENANT)
    setup.sandbox->runtimes = std::min(setup.sandbox->runtimes, load.users);
  setup.cluster = std::move(cluster);
  setup.workload = Make(load, seed);
  setup.seed = seed;
  setup.profiled = true;
  return setup;
}

Summary WorkflowSummary(const SimulationSetup& setup, const Outcome& outcome) {
  std::vector<Duration> took;
  for (const Answer& run : outcome.answers)
    took.push_back(run.code == 0 ? run.took : std::max(run.took, setup.cluster.timeout));
  const auto within = [&](Duration limit) {
    return static_cast<double>(std::ranges::count_if(
        outcome.answers, [&](const Answer& run) { return run.code == 0 && run.took <= limit; }));
  };
  const Duration sum = std::accumulate(took.begin(), took.end(), Duration());
  const double all = std::max<double>(1, static_cast<double>(outcome.answers.size()));
  Summary summary = {{"in_time", within(kSlo) / all},
                     {"mean_ms", took.empty() ? 0 : ToMillis(sum) / static_cast<double>(took.size())},
                     {"p50_ms", ToMillis(NearestRank(took, 50))},
                     {"p98_ms", ToMillis(NearestRank(took, 98))},
                     {"starts", static_cast<double>(outcome.starts)},
                     {"computing", outcome.computing},
                     {"copies", outcome.duplicates},
                     {"loads", static_cast<double>(outcome.swaps)},
                     {"memory_gb", static_cast<double>(outcome.gpu_memory.count()) / 1e9}};
  for (const TimeOut& time_out : kTimeOuts)
    summary[time_out.served] = within(time_out.limit) / ToSeconds(setup.workload.length);
  return summary;
}

const std::vector<std::string>& UsualPresets() {
  static const std::vector<std::string> kPresets = {"infless", "astraea", "stream-only", "streambox",
                                                    "planned+streams"};
  return kPresets;
}

Sweep SweepOf(const std::string& experiment) {
  Sweep sweep{.experiment = experiment,
              .cases = {},
              .quantities = {{"in_time", ""},
                             {"mean_ms", "ms"},
                             {"p50_ms", "ms"},
                             {"p98_ms", "ms"},
                             {"starts", ""},
                             {"computing", ""},
                             {"copies", ""},
                             {"loads", ""},
                             {"memory_gb", "GB"}},
              .summarize = &WorkflowSummary,
              .paper = {}};
  for (const TimeOut& time_out : kTimeOuts) sweep.quantities.push_back({time_out.served, "1/s"});
  return sweep;
}

void AddCases(Sweep& sweep, const std::string& where, const ClusterSpec& cluster, const Load& load,
              const ExperimentOptions& options) {
  for (const std::string& preset : PresetsOf(options, UsualPresets())) {
    Load own = load;
    if (options.minutes > 0) own.minutes = options.minutes;
    sweep.cases.push_back({.key = absl::StrCat(where, "/", preset),
                           .baseline = preset == "infless" ? "" : absl::StrCat(where, "/infless"),
                           .setup = [cluster, own, preset](std::uint64_t seed) {
                             return SetupOf(cluster, own, preset, seed);
                           }});
  }
}

// What the paper has of streambox beside a baseline: of 9.1, Fig. 12 to 14.
struct Comparison {
  const char* name;
  const char* quantity;
  bool less;  // how much less, as a share; else how many times
  std::map<std::string, double> paper;
};
const std::vector<Comparison>& Comparisons() {
  static const std::vector<Comparison> kComparisons = [] {
    std::vector<Comparison> all = {
        {"less_latency", "mean_ms", true, {{"infless", 0.98}, {"astraea", 0.98}, {"stream-only", 0.49}}},
        {"less_memory", "memory_gb", true, {{"infless", 0.79}, {"astraea", 0.82}, {"stream-only", 0.71}}}};
    for (const TimeOut& time_out : kTimeOuts)
      all.push_back({time_out.times,
                     time_out.served,
                     false,
                     {{"infless", 6.7}, {"astraea", 5.3}, {"stream-only", 1.46}}});
    return all;
  }();
  return kComparisons;
}

// Ours over the baseline's, seed by seed; none where one of them was not run, or the baseline has nothing.
std::vector<double> Ratios(const SweepValues& values, const std::string& where, const char* ours,
                           const std::string& baseline, const char* quantity) {
  const auto mine = values.find(absl::StrCat(where, "/", ours));
  const auto other = values.find(absl::StrCat(where, "/", baseline));
  std::vector<double> ratios;
  if (mine == values.end() || other == values.end()) return ratios;
  const auto& of = other->second.at(quantity);
  for (std::size_t i = 0; i < of.size(); ++i)
    if (of[i] > 0) ratios.push_back(mine->second.at(quantity)[i] / of[i]);
  return ratios;
}

// Calls `add` with each comparison, whose it is, the baseline, and what the paper has of it.
template <class Add>
void ForEachComparison(Add add) {
  for (const Comparison& comparison : Comparisons())
    for (const char* ours : {"streambox", "planned+streams"})
      for (const auto& [baseline, paper] : comparison.paper)
        add(comparison, ours, baseline,
            ours == std::string_view("streambox") ? std::optional(paper) : std::nullopt);
}

std::string NameOf(const std::string& experiment, const std::string& where, const std::string& baseline,
                   const char* ours, const Comparison& comparison) {
  return absl::StrCat(experiment, "/", where, "/", baseline, "/", ours, "_", comparison.name);
}

void AddComparisons(const std::string& experiment, const std::string& where, const SweepValues& values,
                    std::vector<Figure>& figures) {
  ForEachComparison([&](const Comparison& comparison, const char* ours, const std::string& baseline,
                        std::optional<double> paper) {
    Figure figure{.name = NameOf(experiment, where, baseline, ours, comparison),
                  .unit = comparison.less ? "" : "x",
                  .values = Ratios(values, where, ours, baseline, comparison.quantity),
                  .paper = paper,
                  .baseline = {}};
    if (comparison.less)
      for (double& value : figure.values) value = 1 - value;
    if (!figure.values.empty()) figures.push_back(std::move(figure));
  });
}

// How many times on average over the loads (9.1): the geometric mean, which no single load rules.
void AddAverages(const std::string& experiment, const std::vector<std::string>& loads, std::size_t seeds,
                 const SweepValues& values, std::vector<Figure>& figures) {
  ForEachComparison([&](const Comparison& comparison, const char* ours, const std::string& baseline,
                        std::optional<double> paper) {
    if (comparison.less) return;
    std::vector<double> average(seeds, 1);
    for (const std::string& load : loads) {
      const auto ratios = Ratios(values, load, ours, baseline, comparison.quantity);
      if (ratios.size() < seeds) return;  // whose they are is not known
      for (std::size_t i = 0; i < seeds; ++i)
        average[i] *= std::pow(ratios[i], 1 / static_cast<double>(loads.size()));
    }
    figures.push_back({.name = NameOf(experiment, "average", baseline, ours, comparison),
                       .unit = "x",
                       .values = std::move(average),
                       .paper = paper,
                       .baseline = {}});
  });
}

}  // namespace

absl::StatusOr<std::vector<Figure>> StreamBoxThroughput(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadTorporInputs(options.data));
  static const std::map<std::string, Shape> kOfPaper = {
      {"bursty", Shape::kBursty}, {"periodic", Shape::kPeriodic}, {"sporadic", Shape::kSporadic}};
  std::map<std::string, Load> loads = {
      {"saturated", {.shape = Shape::kPoisson, .rate = kSaturated, .workflows = kWorkflowsOfAGpu}}};
  std::vector<std::string> of_paper;
  for (const auto& [name, shape] : kOfPaper) {
    loads[name] = {.shape = shape, .rate = kRate, .workflows = kWorkflowsOfAGpu};
    of_paper.push_back(name);
  }
  Sweep sweep = SweepOf("streambox-throughput");
  for (const auto& [name, load] : loads) AddCases(sweep, name, Nodes(inputs.models, 1), load, options);
  TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, options));
  auto figures = FiguresOf(sweep, values);
  for (const auto& [name, load] : loads) AddComparisons(sweep.experiment, name, values, figures);
  AddAverages(sweep.experiment, of_paper, options.seeds, values, figures);
  return figures;
}

absl::StatusOr<std::vector<Figure>> StreamBoxTenants(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadTorporInputs(options.data));
  Sweep sweep = SweepOf("streambox-tenants");
  for (const std::uint32_t users : {3, 6})
    AddCases(
        sweep, absl::StrCat(users), Nodes(inputs.models, 1),
        {.shape = Shape::kBursty, .rate = kRate, .workflows = users, .users = users, .traffic_only = true},
        options);
  TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, options));
  return FiguresOf(sweep, values);
}

absl::StatusOr<std::vector<Figure>> StreamBoxCluster(const ExperimentOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const auto inputs, ReadTorporInputs(options.data));
  Sweep sweep = SweepOf("streambox-cluster");
  for (const std::uint32_t nodes : {4, 8})
    AddCases(sweep, absl::StrCat(nodes), Nodes(inputs.models, nodes),
             {.shape = Shape::kBursty, .rate = kRate * nodes, .workflows = kWorkflowsOfAGpu * nodes},
             options);
  TROUPE_ASSIGN_OR_RETURN(const auto values, RunSweep(sweep, options));
  auto figures = FiguresOf(sweep, values);
  for (const std::uint32_t nodes : {4, 8})
    AddComparisons(sweep.experiment, absl::StrCat(nodes), values, figures);
  return figures;
}

}  // namespace troupe::sim

#include "sim/experiments/torpor_setup.hpp"

#include <array>
#include <fstream>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.hpp"
#include "sim/traces/generators.hpp"
#include "sim/traces/trace_reader.hpp"

namespace troupe::sim {

namespace {

// The models of Table 4. The paper does not print the size of their weights: these are the published models'.
struct Published {
  const char* name;
  std::uint64_t megabytes;
};
constexpr std::array<Published, 8> kPublished = {{{"DenseNet-169", 57},
                                                  {"DenseNet-201", 81},
                                                  {"Inception-v3", 109},
                                                  {"EfficientNet", 21},
                                                  {"ResNet-50", 102},
                                                  {"ResNet-101", 178},
                                                  {"ResNet-152", 241},
                                                  {"Bert-qa", 1340}}};
constexpr const char* kBert = "Bert-qa";
constexpr const char* kOtherRuntime = "ResNet-152";  // stands in Table 1 for all models but Bert-qa

constexpr Bytes Megabytes(std::uint64_t count) {
  return Bytes(count * 1'000'000);
}

// A row's numbers, by column.
using Row = std::map<std::string, double>;

// A table with a column `model` and columns of numbers.
absl::StatusOr<std::map<std::string, Row>> ReadTable(const std::string& path,
                                                     const std::vector<std::string>& needed) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no table ", path, " that can be read"));
  std::vector<std::string> columns;
  std::map<std::string, Row> table;
  std::string text;
  for (std::size_t line = 1; std::getline(file, text); ++line) {
    const std::vector<std::string> cells = absl::StrSplit(std::string(absl::StripAsciiWhitespace(text)), ',');
    if (line == 1) columns = cells;
    if (columns.front() != "model" || cells.size() != columns.size())
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", line, ": expected a column 'model' first and ", columns.size(), " cells"));
    if (line == 1) continue;
    for (std::size_t i = 1; i < cells.size(); ++i) {
      double value = 0;
      if (absl::SimpleAtod(cells[i], &value)) table[cells[0]][columns[i]] = value;
    }
    for (const std::string& column : needed)
      if (!(table[cells[0]][column] > 0))
        return absl::InvalidArgumentError(
            absl::StrCat(path, ":", line, ": expected a number above zero in column '", column, "'"));
  }
  return table;
}

Duration Milliseconds(double count) {
  return FromSeconds(count / 1000);
}

void TakeNativeTimes(std::vector<ModelSpec>& models) {
  for (ModelSpec& model : models) {
    const Duration longer = model.times.swapped - model.times.run;
    model.times.run = model.runtime.run;
    model.times.swapped = model.times.run + longer;
  }
}

}  // namespace

absl::StatusOr<TorporInputs> ReadTorporInputs(const std::string& data) {
  const auto times_path = data + "/papers/torpor_table4.csv";
  const auto runtimes_path = data + "/papers/torpor_table1.csv";
  const auto samples_path = data + "/traces/torpor/samples.csv";
  TROUPE_ASSIGN_OR_RETURN(const auto times,
                          ReadTable(times_path, {"native_ms", "gpu_remoting_ms", "swap_pcie_ms"}));
  TROUPE_ASSIGN_OR_RETURN(const auto runtimes, ReadTable(runtimes_path, {"coldstart_s", "mem_footprint_gb"}));
  TROUPE_ASSIGN_OR_RETURN(auto samples, ReadTrace(samples_path));
  TorporInputs inputs;
  auto* counts = std::get_if<MinuteCounts>(&samples);
  if (counts == nullptr || counts->minutes() == 0)
    return absl::InvalidArgumentError(absl::StrCat(samples_path, ": expected counts per minute"));
  inputs.samples = std::move(*counts);
  for (const Published& published : kPublished) {
    const bool bert = std::string_view(published.name) == kBert;
    const auto time = times.find(published.name);
    const auto runtime = runtimes.find(bert ? kBert : kOtherRuntime);
    if (time == times.end())
      return absl::InvalidArgumentError(absl::StrCat(times_path, ": expected a line for ", published.name));
    if (runtime == runtimes.end())
      return absl::InvalidArgumentError(
          absl::StrCat(runtimes_path, ": expected lines for ", kBert, " and ", kOtherRuntime));
    ModelSpec model;
    model.name = published.name;
    model.memory = Megabytes(published.megabytes);
    model.times.run = Milliseconds(time->second.at("gpu_remoting_ms"));
    model.times.swapped = Milliseconds(time->second.at("swap_pcie_ms"));
    model.deadline = std::chrono::milliseconds(bert ? 200 : 80);
    model.runtime = {
        .footprint = Bytes(static_cast<std::uint64_t>(runtime->second.at("mem_footprint_gb") * 1e9)),
        .cold_start = FromSeconds(runtime->second.at("coldstart_s")),
        .run = Milliseconds(time->second.at("native_ms"))};
    inputs.models.push_back(std::move(model));
  }
  return inputs;
}

absl::StatusOr<std::vector<ModelSpec>> ReadPilotModels(const std::string& data) {
  TROUPE_ASSIGN_OR_RETURN(const auto table, ReadTable(data + "/papers/torpor_table1.csv",
                                                      {"torpor_model_load_s", "torpor_runtime_resume_s",
                                                       "coldstart_s", "mem_footprint_gb"}));
  std::vector<ModelSpec> models;
  for (const auto& [name, row] : table) {
    const double load = row.at("torpor_model_load_s") + row.at("torpor_runtime_resume_s");
    const double run = load * (1 - kPilotLoading) / kPilotLoading;
    const Bytes memory(static_cast<std::uint64_t>(row.at("mem_footprint_gb") * 1e9));
    ModelSpec model;
    model.name = name;
    model.memory = memory;
    model.times = {.run = FromSeconds(run), .load = FromSeconds(load), .swapped = FromSeconds(load + run)};
    model.deadline = FromSeconds(2 * (load + run));
    model.runtime = {
        .footprint = memory, .cold_start = FromSeconds(row.at("coldstart_s")), .run = FromSeconds(run)};
    models.push_back(std::move(model));
  }
  return models;
}

ClusterSpec TorporNode(std::vector<ModelSpec> models) {
  ClusterSpec cluster;
  cluster.gpus = 4;
  cluster.gpu_memory = Megabytes(25'000);  // the released code's budget of a V100's 32 GB
  cluster.host_memory = Megabytes(384'000);
  cluster.loads = LoadMode::kPipelined;
  cluster.link = BytesPerSecond{12e9};
  cluster.timeout = std::chrono::minutes(1);
  cluster.topology = *node::Topology::Parse("v100x4");
  cluster.models = std::move(models);
  return cluster;
}

MinuteCounts TorporFunctions(const MinuteCounts& samples, std::uint32_t functions, std::uint32_t minutes) {
  MinuteCounts counts;
  for (std::uint32_t i = 0; i < functions; ++i) {
    counts.functions.push_back({.name = absl::StrFormat("function-%04d", i), .model = {}});
    const auto& row = samples.counts[i % samples.counts.size()];
    counts.counts.emplace_back(row.begin(), row.begin() + std::min<std::size_t>(minutes, row.size()));
  }
  return counts;
}

MinuteCounts ScaledFunctions(const MinuteCounts& samples, const std::string& model, std::uint32_t functions,
                             double rate, std::uint32_t minutes) {
  MinuteCounts counts = TorporFunctions(samples, functions, minutes);
  for (auto& function : counts.functions) function.model = model;
  for (auto& row : counts.counts) {
    double sum = 0;
    for (const auto count : row) sum += count;
    // What is cut off of a minute's count is carried to the next: at low rates most of it would be lost.
    double due = 0;
    for (auto& count : row) {
      due += sum == 0 ? rate : rate * count * static_cast<double>(row.size()) / sum;
      count = static_cast<std::uint32_t>(due);
      due -= count;
    }
  }
  return counts;
}

std::uint32_t MinutesOf(const ExperimentOptions& options, std::uint32_t usual) {
  return options.minutes == 0 ? usual : options.minutes;
}

// Given sizes are taken in the experiment's steps, from the smallest; those of the experiment itself when its
// range is not asked for.
std::vector<std::uint32_t> SizesOf(const ExperimentOptions& options, std::uint32_t first, std::uint32_t last,
                                   std::uint32_t step) {
  if (options.most_functions > 0) {
    first = options.fewest_functions;
    last = options.most_functions;
  }
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t size = first; size <= last; size += step) sizes.push_back(size);
  return sizes;
}

std::vector<std::string> PresetsOf(const ExperimentOptions& options, const std::vector<std::string>& usual) {
  return options.presets.empty() ? usual : options.presets;
}

absl::StatusOr<SimPreset> PresetOfRow(std::string_view row) {
  std::string_view name = row;
  if (name.ends_with(kAtNativeTimes)) name.remove_suffix(kAtNativeTimes.size());
  if (name != row && BringsRuntimes(name))
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(row), "': the runs of '", std::string(name),
                     "' take the native times anyway; leave '", std::string(kAtNativeTimes), "' out"));
  return FindSimPreset(name);
}

bool BindsForGood(const std::string& row) {
  const auto preset = PresetOfRow(row);
  return preset.ok() && preset->policies.binding == "fixed";
}

absl::StatusOr<SimulationSetup> TorporRun(ClusterSpec cluster, const MinuteCounts& counts, Spread spread,
                                          const std::string& row, std::uint64_t seed) {
  SimulationSetup setup;
  TROUPE_ASSIGN_OR_RETURN(const auto chosen, PresetOfRow(row));
  setup.policies = chosen.policies;
  Random random(seed);
  setup.cluster = std::move(cluster);
  if (row != chosen.name) TakeNativeTimes(setup.cluster.models);
  setup.workload = SpreadCounts(counts, spread, random);
  setup.seed = seed;
  setup.profiled = true;
  setup.runtimes = BringsRuntimes(chosen.name);
  if (setup.runtimes) setup.cluster.gpu_memory = Megabytes(32'000);  // no pool: all of a V100's
  setup.cluster.link_sharing = chosen.mechanisms.links;
  setup.cluster.run_turns = chosen.mechanisms.runs;
  setup.limits.swap_ahead = chosen.mechanisms.swap_ahead;
  return setup;
}

absl::StatusOr<SimulationSetup> TorporRunAlike(ClusterSpec cluster, std::uint32_t functions, double rate,
                                               std::uint32_t minutes, const std::string& row,
                                               std::uint64_t seed) {
  TROUPE_ASSIGN_OR_RETURN(auto setup,
                          TorporRun(std::move(cluster), MinuteCounts(), Spread::kPoisson, row, seed));
  Random random(seed);
  setup.workload = MakeWorkload({.shape = Shape::kPoisson,
                                 .functions = functions,
                                 .rate = rate,
                                 .length = std::chrono::minutes(minutes)},
                                random);
  setup.profiled = false;
  return setup;
}

std::vector<Duration> ServedLatencies(const Outcome& outcome) {
  std::vector<Duration> took;
  for (const Answer& answer : outcome.answers)
    if (answer.code == 0 && answer.at >= kTorporWarmUp) took.push_back(answer.took);
  return took;
}

Summary TorporSummary(const SimulationSetup& setup, const Outcome& outcome) {
  const auto models = AssignModels(setup.cluster, setup.workload.functions);
  std::map<std::uint32_t, std::vector<Duration>> took;  // by function
  std::map<bool, std::vector<Duration>> of_kind;        // true: Bert-qa
  std::map<std::uint32_t, std::uint64_t> served;
  for (const Answer& answer : outcome.answers) {
    served[answer.function] += answer.code == 0 ? 1 : 0;
    if (answer.at < kTorporWarmUp) continue;
    const Duration latency = answer.code == 0 ? answer.took : std::max(answer.took, setup.cluster.timeout);
    took[answer.function].push_back(latency);
    of_kind[setup.cluster.models[(*models)[answer.function]].name == kBert].push_back(latency);
  }
  double compliant = 0;
  std::map<bool, double> late;
  for (auto& [function, latencies] : took) {
    const ModelSpec& model = setup.cluster.models[(*models)[function]];
    compliant += NearestRank(latencies, kTorporPercentile) <= model.deadline ? 1 : 0;
    late[model.name == kBert] += static_cast<double>(
        std::ranges::count_if(latencies, [&](Duration latency) { return latency > model.deadline; }));
  }
  double executed = 0;
  for (const auto& [function, count] : served) executed += count > 0 ? 1 : 0;
  std::map<bool, double> runs;
  std::map<bool, double> host;
  std::map<bool, double> peer;
  for (std::size_t i = 0; i < models->size(); ++i) {
    const bool bert = setup.cluster.models[(*models)[i]].name == kBert;
    const auto count = served.find(static_cast<std::uint32_t>(i));
    runs[bert] += count == served.end() ? 0 : static_cast<double>(count->second);
    host[bert] += static_cast<double>(outcome.from_host[i]);
    peer[bert] += static_cast<double>(outcome.from_peers[i]);
  }
  const auto of_runs = [&](std::map<bool, double>& loads, bool bert) {
    return runs[bert] > 0 ? loads[bert] / runs[bert] : 0;
  };
  const auto swaps = static_cast<double>(std::max<std::uint64_t>(outcome.swaps, 1));
  const auto late_share = [&](bool bert) {
    return of_kind[bert].empty() ? 0 : late[bert] / static_cast<double>(of_kind[bert].size());
  };
  const auto p98 = [&](bool bert) { return 1e3 * ToSeconds(NearestRank(of_kind[bert], kTorporPercentile)); };
  return {{"compliant", took.empty() ? 0 : compliant / static_cast<double>(took.size())},
          {"compliant_functions", compliant},
          {"executed_functions", executed},
          {"late_cv", late_share(false)},
          {"late_bert", late_share(true)},
          {"p98_cv_ms", p98(false)},
          {"p98_bert_ms", p98(true)},
          {"hits", 1 - outcome.MissRatio()},
          {"host_cv", of_runs(host, false)},
          {"host_bert", of_runs(host, true)},
          {"peer_cv", of_runs(peer, false)},
          {"peer_bert", of_runs(peer, true)},
          {"peer_of_swaps", static_cast<double>(outcome.peer_swaps) / swaps},
          {"computing", outcome.computing},
          {"link", outcome.link}};
}

}  // namespace troupe::sim

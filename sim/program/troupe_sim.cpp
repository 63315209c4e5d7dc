// troupe-sim: simulations of a cluster under virtual time (`troupe simulate`), and the papers' experiments
// (`troupe experiment`).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status.hpp"
#include "cluster/copies/fetch_policy.hpp"
#include "cluster/copies/replica_policy.hpp"
#include "cluster/routing_policy.hpp"
#include "gpu/memory/memory_policy.hpp"
#include "node/scheduling/scheduler_types.hpp"
#include "sim/cancel.hpp"
#include "sim/experiments/experiment.hpp"
#include "sim/experiments/torpor_setup.hpp"
#include "sim/plot.hpp"
#include "sim/presets.hpp"
#include "sim/report.hpp"
#include "sim/schedules/chaos_command.hpp"
#include "sim/simulation.hpp"
#include "sim/traces/generators.hpp"
#include "sim/traces/trace_reader.hpp"

namespace {

using namespace troupe;

constexpr int kRefused = 1;  // it ran, and something that must hold did not
constexpr int kUsage = 2;    // the command or an input file is wrong
constexpr int kInterrupted = 130;

// One slot of the preset, and what is to stand there; empty: the preset's.
struct Slot {
  const char* flag;
  std::string PolicyNames::*slot;
  std::string name{};
};

struct SimulateOptions {
  std::string trace, generate, cluster, faults, policy = "troupe", spread = "uniform";
  std::uint64_t seed = 1;
  std::uint32_t swap_ahead = node::kDefaultSwapAhead;
  std::array<Slot, 8> slots = {{{"--routing", &PolicyNames::routing},
                                {"--ordering", &PolicyNames::ordering},
                                {"--prefetch", &PolicyNames::prefetch},
                                {"--gpu", &PolicyNames::gpu},
                                {"--eviction", &PolicyNames::eviction},
                                {"--batching", &PolicyNames::batching},
                                {"--replica-policy", &PolicyNames::replicas},
                                {"--memory-policy", &PolicyNames::memory}}};
};

absl::StatusOr<sim::Workload> WorkloadOf(const SimulateOptions& options) {
  Random random(options.seed);
  if (!options.generate.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const auto made, sim::ParseMadeWorkload(options.generate));
    return sim::MakeWorkload(made, random);
  }
  TROUPE_ASSIGN_OR_RETURN(const auto spread, sim::ParseSpread(options.spread));
  TROUPE_ASSIGN_OR_RETURN(auto trace, sim::ReadTrace(options.trace));
  if (auto* arrivals = std::get_if<sim::Workload>(&trace)) return std::move(*arrivals);
  return sim::SpreadCounts(std::get<sim::MinuteCounts>(trace), spread, random);
}

// Virtual and wall time on the error stream, once a second of wall time.
class ProgressLine {
 public:
  explicit ProgressLine(Duration length) : length_(length) {}
  bool operator()(const sim::Progress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ >= std::chrono::seconds(1)) {
      last_ = now;
      std::cerr << absl::StrFormat("%s of %s in %s, %d of %d requests answered\n",
                                   FormatDuration(progress.at), FormatDuration(length_),
                                   FormatDuration(std::chrono::duration_cast<Duration>(now - begin_)),
                                   progress.answered, progress.asked);
    }
    return !sim::Interrupted();
  }

 private:
  const Duration length_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_ = begin_;
};

absl::StatusOr<int> RunSimulate(const SimulateOptions& options) {
  sim::SimulationSetup setup;
  TROUPE_ASSIGN_OR_RETURN(const auto preset, sim::FindSimPreset(options.policy));
  if (!preset.sandbox && !FindPreset(options.policy).ok())
    return absl::InvalidArgumentError(absl::StrCat(
        "--policy: '", options.policy,
        "' is a preset of experiments; say the order on the links in the cluster file (link-sharing), and "
        "--swap-ahead; the SMs are shared in experiments alone"));
  setup.policies = preset.policies;
  setup.sandbox = preset.sandbox;
  for (const Slot& slot : options.slots)
    if (!slot.name.empty()) setup.policies.*slot.slot = slot.name;
  TROUPE_RETURN_IF_ERROR(node::FindSchedulerPolicies(setup.policies).status());
  TROUPE_RETURN_IF_ERROR(cluster::FindRoutingPolicy(setup.policies.routing).status());
  TROUPE_RETURN_IF_ERROR(cluster::FindReplicaPolicy(setup.policies.replicas).status());
  TROUPE_RETURN_IF_ERROR(cluster::FindFetchPolicy(setup.policies.fetching).status());
  TROUPE_RETURN_IF_ERROR(gpu::FindMemoryPolicy(setup.policies.memory).status());
  setup.limits.swap_ahead = options.swap_ahead;
  TROUPE_ASSIGN_OR_RETURN(setup.cluster, sim::ReadCluster(options.cluster));
  if (!options.faults.empty()) {
    TROUPE_ASSIGN_OR_RETURN(setup.faults, sim::ReadFaults(options.faults, setup.cluster));
  }
  TROUPE_ASSIGN_OR_RETURN(setup.workload, WorkloadOf(options));
  setup.seed = options.seed;
  setup.runtimes = sim::BringsRuntimes(options.policy);
  setup.go_on = ProgressLine(setup.workload.length);
  TROUPE_ASSIGN_OR_RETURN(const auto outcome, sim::Simulate(setup));
  sim::PrintOutcome(std::cout, setup, options.policy, outcome);
  if (outcome.ended_early) return kInterrupted;
  const auto conserved = outcome.Conserved();
  if (conserved.ok()) return 0;
  std::cerr << "troupe-sim: " << conserved.message() << "\n";
  return kRefused;
}

struct ExperimentCommand {
  std::string name, data, json, svg, functions;
  sim::ExperimentOptions options;
};

// "320..800", or one number.
absl::Status ReadRange(const std::string& text, sim::ExperimentOptions& options) {
  if (text.empty()) return absl::OkStatus();
  const std::vector<std::string> ends = absl::StrSplit(text, "..");
  if (ends.size() <= 2 && absl::SimpleAtoi(ends.front(), &options.fewest_functions) &&
      absl::SimpleAtoi(ends.back(), &options.most_functions) && options.fewest_functions > 0 &&
      options.fewest_functions <= options.most_functions)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--functions: found '", text, "', expected two numbers such as 320..800"));
}

constexpr const char* kDataHint =
    "--data is a folder with the papers' tables (papers/) and the traces (traces/), as sim/README.md lists them";

std::string ConditionsOf(const sim::Experiment& experiment, const ExperimentCommand& command) {
  switch (experiment.basis) {
    case sim::Basis::kData:
      return absl::StrCat(command.options.seeds, " seeds, virtual time");
    case sim::Basis::kWallTime:
      return "wall time of one run";
    case sim::Basis::kLinks:
      return "one run, virtual time, simulated links";
  }
  return {};
}

absl::StatusOr<int> RunExperiment(ExperimentCommand& command) {
  const auto all = sim::Experiments();
  if (command.name == "list") {
    for (const auto& experiment : all)
      std::cout << absl::StrFormat("%-20s %s\n", std::string(experiment.name), std::string(experiment.what));
    std::cerr << "(001 is FaST-GShare, 002 Torpor, 003 LALB, 004 StreamBox; " << kDataHint << ")\n";
    return 0;
  }
  const auto chosen = std::ranges::find(all, command.name, &sim::Experiment::name);
  if (chosen == all.end())
    return absl::InvalidArgumentError(
        absl::StrCat("no experiment is called '", command.name, "'; `troupe experiment list` names them"));
  if (command.data.empty() && chosen->basis == sim::Basis::kData)
    return absl::InvalidArgumentError(absl::StrCat("an experiment needs --data DIR: ", kDataHint));
  command.options.data = command.data;
  command.options.interrupted = &sim::Interrupted;
  TROUPE_RETURN_IF_ERROR(ReadRange(command.functions, command.options));
  for (const auto& preset : command.options.presets)
    TROUPE_RETURN_IF_ERROR(sim::PresetOfRow(preset).status());
  command.options.go_on = [](const std::string& what) {
    std::cerr << what << "\n";
    return !sim::Interrupted();
  };
  const auto figures = chosen->run(command.options);
  if (absl::IsInternal(figures.status())) {  // something was lost
    std::cerr << "troupe-sim: " << figures.status().message() << "\n";
    return kRefused;
  }
  if (absl::IsNotFound(figures.status()))
    return absl::NotFoundError(absl::StrCat(figures.status().message(), "; ", kDataHint));
  TROUPE_RETURN_IF_ERROR(figures.status());
  sim::PrintFigures(std::cout, *figures);
  if (!command.svg.empty())
    TROUPE_RETURN_IF_ERROR(sim::WritePlots(command.svg, sim::PlotsOf(*figures, std::string(chosen->x_axis))));
  if (!command.json.empty())
    TROUPE_RETURN_IF_ERROR(sim::WriteFigures(
        command.json, *figures, absl::StrCat(command.name, ", ", ConditionsOf(*chosen, command))));
  return sim::Interrupted() ? kInterrupted : 0;
}

absl::StatusOr<int> RunSchedules(sim::ChaosCommand& command) {
  command.interrupted = &sim::Interrupted;
  TROUPE_ASSIGN_OR_RETURN(const bool good, sim::RunChaos(command, std::cout));
  if (sim::Interrupted()) return kInterrupted;
  return good ? 0 : kRefused;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Simulations of a Troupe cluster under virtual time", "troupe-sim");
  app.require_subcommand(1);
  SimulateOptions options;
  auto* simulate = app.add_subcommand("simulate", "a workload on a simulated cluster under a preset");
  auto* source = simulate->add_option_group("workload", "what is asked of the cluster");
  source->add_option("--trace", options.trace, "counts per minute or arrivals, with commas (sim/README.md)");
  source->add_option("--generate", options.generate, "made: 'bursty functions=20 rate=5 length=3m'");
  source->require_option(1);
  simulate->add_option("--cluster", options.cluster, "the hardware and the models, YAML")->required();
  simulate->add_option("--faults", options.faults, "what goes wrong with the network, and when, YAML");
  simulate->add_option("--policy", options.policy, "preset of policies");
  for (Slot& slot : options.slots) simulate->add_option(slot.flag, slot.name, "over the preset's");
  simulate->add_option("--swap-ahead", options.swap_ahead,
                       "requests given to a GPU ahead of their turn, and one");
  simulate->add_option("--seed", options.seed, "of the arrivals and of policies that draw lots");
  simulate->add_option("--spread", options.spread, "of a minute's requests: uniform, even, poisson");
  ExperimentCommand command;
  auto* experiment = app.add_subcommand("experiment", "a paper's experiment; 'list' names them");
  experiment->add_option("name", command.name, "which, or list")->required();
  experiment->add_option("--data", command.data, "folder with papers/ and traces/");
  experiment->add_option("--json", command.json, "file for the figures");
  experiment->add_option("--gpus", command.options.gpus, "azure-day, scale: numbers of GPUs, with commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 10'000));
  experiment
      ->add_option("--rates", command.options.rates,
                   "azure-day: times the trace's rate; gpu-kinds: requests a second; with commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 1000));
  experiment->add_option("--svg", command.svg, "folder for a picture of each figure");
  experiment->add_option("--jobs", command.options.jobs, "runs at a time")->check(CLI::Range(1, 1000));
  experiment->add_option("--functions", command.functions,
                         "A..B: only these numbers of functions (scale: A, 10 A ... up to B)");
  experiment->add_option("--minutes", command.options.minutes, "of the trace")->check(CLI::Range(1, 100'000));
  experiment->add_option("--presets", command.options.presets, "only these, with commas")->delimiter(',');
  experiment->add_option("--seeds", command.options.seeds, "how many, from 1 on")->check(CLI::Range(1, 1000));
  sim::ChaosCommand chaos;
  auto* schedules = app.add_subcommand("chaos-sim", "schedules of faults, each judged by the checkers");
  schedules->add_option("--seed", chaos.seed, "only this schedule");
  schedules->add_option("--from", chaos.from, "the first schedule's seed");
  schedules->add_option("--schedules", chaos.schedules, "how many")->check(CLI::Range(1, 100'000'000));
  schedules->add_option("--jobs", chaos.jobs, "schedules at a time")->check(CLI::Range(1, 1000));
  schedules->add_option("--steps", chaos.steps, "how many of a failed schedule's last steps are told")
      ->check(CLI::Range(0, 1'000'000));
  schedules->add_option("--plant", chaos.planted,
                        "an error for the checkers to find; a wrong name lists them");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    const auto name = chosen.empty() ? "" : " " + chosen.front()->get_name();
    std::cerr << "troupe-sim:" << name << (name.empty() ? " " : ": ") << error.what() << "; see 'troupe"
              << (name.empty() ? "-sim" : name) << " --help'\n";
    return kUsage;
  }
  sim::WatchInterrupts();
  const auto code = schedules->parsed()    ? RunSchedules(chaos)
                    : experiment->parsed() ? RunExperiment(command)
                                           : RunSimulate(options);
  if (code.ok()) return *code;
  std::cerr << "troupe-sim: " << code.status().message() << "\n";
  return kUsage;
}

// troupe-sim: simulations of a cluster under virtual time (`troupe simulate`), and the papers' experiments
// (`troupe experiment`).
#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <string>

#include "absl/strings/str_format.h"
#include "base/status.hpp"
#include "sim/cancel.hpp"
#include "sim/report.hpp"
#include "sim/simulation.hpp"
#include "sim/traces/generators.hpp"
#include "sim/traces/trace_reader.hpp"

namespace {

using namespace troupe;

constexpr int kRefused = 1;  // it ran, and something that must hold did not
constexpr int kUsage = 2;    // the command or an input file is wrong
constexpr int kInterrupted = 130;

struct SimulateOptions {
  std::string trace, generate, cluster, policy = "troupe", spread = "uniform";
  std::uint64_t seed = 1;
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
  TROUPE_ASSIGN_OR_RETURN(setup.policies, FindPreset(options.policy));
  TROUPE_ASSIGN_OR_RETURN(setup.cluster, sim::ReadCluster(options.cluster));
  TROUPE_ASSIGN_OR_RETURN(setup.workload, WorkloadOf(options));
  setup.seed = options.seed;
  setup.go_on = ProgressLine(setup.workload.length);
  TROUPE_ASSIGN_OR_RETURN(const auto outcome, sim::Simulate(setup));
  sim::PrintOutcome(std::cout, setup, options.policy, outcome);
  if (outcome.ended_early) return kInterrupted;
  const auto conserved = outcome.Conserved();
  if (conserved.ok()) return 0;
  std::cerr << "troupe-sim: " << conserved.message() << "\n";
  return kRefused;
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
  simulate->add_option("--policy", options.policy, "preset of policies");
  simulate->add_option("--seed", options.seed, "of the arrivals and of policies that draw lots");
  simulate->add_option("--spread", options.spread, "of a minute's requests: uniform, even, poisson");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return kUsage;
  }
  sim::WatchInterrupts();
  const auto code = RunSimulate(options);
  if (code.ok()) return *code;
  std::cerr << "troupe-sim: " << code.status().message() << "\n";
  return kUsage;
}

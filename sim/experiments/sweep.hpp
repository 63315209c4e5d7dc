// SWEEP: what an experiment runs: cases, each over several seeds, and quantities of each run. Runs share
// nothing and go on as many threads as are wanted; the figures do not depend on how many.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/experiments/experiment.hpp"

namespace troupe::sim {

// What is kept of a run, by the name of the quantity.
using Summary = std::map<std::string, double>;

struct SweepCase {
  std::string key;       // in the names of its figures: "480/poisson/torpor"
  std::string baseline;  // the key of the case that stands beside it; empty: none
  std::function<absl::StatusOr<SimulationSetup>(std::uint64_t seed)> setup;
};
struct SweepQuantity {
  std::string name;
  std::string unit;
};
struct Sweep {
  std::string experiment;
  std::vector<SweepCase> cases;
  std::vector<SweepQuantity> quantities;
  std::function<Summary(const SimulationSetup&, const Outcome&)> summarize;
  std::map<std::string, double> paper{};  // by "KEY/QUANTITY"
};

// By case, then quantity: a value for each seed that was run.
using SweepValues = std::map<std::string, std::map<std::string, std::vector<double>>>;

// Internal when a run lost a request: which case, and which seed. Ends early, with whole cases only, when
// `options.go_on` says so.
[[nodiscard]] absl::StatusOr<SweepValues> RunSweep(const Sweep& sweep, const ExperimentOptions& options);
// In the order of the cases and quantities.
[[nodiscard]] std::vector<Figure> FiguresOf(const Sweep& sweep, const SweepValues& values);

}  // namespace troupe::sim

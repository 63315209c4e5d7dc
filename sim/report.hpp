// What simulations and experiments say: rows for people, and the common JSON of the benchmarks.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sim/simulation.hpp"

namespace troupe::sim {

// One figure over several seeds, beside the paper's and a baseline's of the same runs.
struct Figure {
  std::string name;  // "lalb-latency/15/troupe/mean_s"
  std::string unit;
  std::vector<double> values;     // by seed
  std::optional<double> paper{};  // as published; empty: the paper has none
  std::string baseline{};         // the name of another figure, empty: none
};

[[nodiscard]] double Mean(const std::vector<double>& values);

// paper | baseline | ours, with the spread over the seeds.
void PrintFigures(std::ostream& out, const std::vector<Figure>& figures);
[[nodiscard]] absl::Status WriteFigures(const std::string& path, const std::vector<Figure>& figures,
                                        const std::string& note);

void PrintOutcome(std::ostream& out, const SimulationSetup& setup, const std::string& preset,
                  const Outcome& outcome);

}  // namespace troupe::sim

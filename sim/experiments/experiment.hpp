// EXPERIMENTS: the papers' measurements, repeated in the simulator: each is a name, what it needs and a
// function that gives figures. One explicit table.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/report.hpp"

namespace troupe::sim {

struct ExperimentOptions {
  std::string data;         // folder with papers/ and traces/
  std::uint32_t seeds = 5;  // 1, 2, ... this many
  // Told what is being run now; false ends the experiment with what there is.
  std::function<bool(const std::string& what)> go_on;
};

struct Experiment {
  std::string_view name;
  std::string_view what;  // one line, for people
  // NotFound when a file of `data` is not there. Internal when a run lost a request: the message has the
  // command that repeats it.
  absl::StatusOr<std::vector<Figure>> (*run)(const ExperimentOptions&) = nullptr;
  // What the second part of its figures' names is (sim/plot.hpp).
  std::string_view x_axis{};
};

[[nodiscard]] std::span<const Experiment> Experiments();

// Of 003 (sim/experiments/lalb.cpp): all from the same runs, and the sweep of the limit.
[[nodiscard]] absl::StatusOr<std::vector<Figure>> LalbLatency(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> LalbMisses(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> LalbFalseMisses(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> LalbDuplicates(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> LalbUtilization(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> Lalb(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> LalbO3Sweep(const ExperimentOptions& options);

}  // namespace troupe::sim

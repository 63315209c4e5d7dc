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
  std::uint32_t jobs = 1;   // runs at a time, each on a thread of its own
  // Where an experiment has a number of functions, minutes of its trace or presets: only these. Zero, empty:
  // the experiment's own.
  std::uint32_t fewest_functions = 0, most_functions = 0;
  std::uint32_t minutes = 0;
  std::vector<std::string> presets{};
  // Of azure-day and scale: GPUs; of azure-day: times the trace's rate. Rates are also of gpu-kinds: requests a second.
  std::vector<std::uint32_t> gpus{}, rates{};
  // Told what is being run now; false ends the experiment with what there is.
  std::function<bool(const std::string& what)> go_on;
  std::function<bool()> interrupted{};  // asked in the middle of a run, on its thread
};

// What an experiment's figures come from.
enum class Basis {
  kData,      // runs in virtual time, of what is in `data`
  kWallTime,  // one run, in wall time of this machine; it reads nothing of `data`
  kLinks      // one run in virtual time, in which nothing is drawn; it reads nothing of `data`
};

struct Experiment {
  std::string_view name;
  std::string_view what;  // one line, for people
  // NotFound when a file of `data` is not there. Internal when a run lost a request: the message has the
  // command that repeats it.
  absl::StatusOr<std::vector<Figure>> (*run)(const ExperimentOptions&) = nullptr;
  // What the second part of its figures' names is (sim/plot.hpp).
  std::string_view x_axis{};
  Basis basis = Basis::kData;
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
// The same GPUs on one node and on several.
[[nodiscard]] absl::StatusOr<std::vector<Figure>> LalbNodes(const ExperimentOptions& options);
// Ours beside a yardstick (sim/experiments/lalb_placement.cpp).
[[nodiscard]] absl::StatusOr<std::vector<Figure>> LalbPlacement(const ExperimentOptions& options);

// Of 002 (sim/experiments/torpor_*.cpp).
[[nodiscard]] absl::StatusOr<std::vector<Figure>> TorporPolicies(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> TorporOneNode(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> TorporHeaviness(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> TorporEfficiency(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> TorporBalance(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> TorporCluster(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> TorporDeadlines(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> TorporCost(const ExperimentOptions& options);

// Of 004 (sim/experiments/streambox.cpp).
[[nodiscard]] absl::StatusOr<std::vector<Figure>> StreamBoxThroughput(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> StreamBoxTenants(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> StreamBoxCluster(const ExperimentOptions& options);

// A day of Azure's functions (sim/experiments/azure.cpp).
[[nodiscard]] absl::StatusOr<std::vector<Figure>> AzureDay(const ExperimentOptions& options);

// A node with GPUs of two kinds (sim/experiments/gpu_kinds.cpp).
[[nodiscard]] absl::StatusOr<std::vector<Figure>> GpuKindChoice(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> NodeKindChoice(const ExperimentOptions& options);

// Several gateways (sim/experiments/gateways.cpp).
[[nodiscard]] absl::StatusOr<std::vector<Figure>> GatewayChoice(const ExperimentOptions& options);

// One model to many nodes (sim/experiments/model_fanout.cpp). It runs each policy of the fetching slot.
[[nodiscard]] absl::StatusOr<std::vector<Figure>> ModelFanout(const ExperimentOptions& options);

// What decisions cost by the number of functions and GPUs (sim/experiments/scale.cpp). `fewest_functions`, ten times as many,
// and so on up to `most_functions`.
[[nodiscard]] absl::StatusOr<std::vector<Figure>> Scale(const ExperimentOptions& options);

// Of 001 (sim/experiments/fast_*.cpp), on one GPU (sim/shared_gpu.hpp).
[[nodiscard]] absl::StatusOr<std::vector<Figure>> FastSpatial(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> FastIsolation(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> FastMemory(const ExperimentOptions& options);
// Of 001 on many GPUs, as cluster/rectangles and cluster/autoscaling decide.
[[nodiscard]] absl::StatusOr<std::vector<Figure>> FastAutoscaling(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> FastEfficiency(const ExperimentOptions& options);
[[nodiscard]] absl::StatusOr<std::vector<Figure>> FastPacking(const ExperimentOptions& options);

}  // namespace troupe::sim

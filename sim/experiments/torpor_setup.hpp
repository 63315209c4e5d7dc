// What Torpor's experiments (002, section 7) have in common: its machine, its eight models, functions with
// the rates of its production trace, and when a function meets its SLO.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/experiments/experiment.hpp"
#include "sim/experiments/sweep.hpp"
#include "sim/presets.hpp"
#include "sim/simulation.hpp"

namespace troupe::sim {

// Requests before this only warm up: they are served, and not judged.
inline constexpr Duration kTorporWarmUp = std::chrono::minutes(1);
inline constexpr double kTorporPercentile = 98;
// Of the active functions; "all functions" of the paper.
inline constexpr double kAllCompliant = 0.99;

struct TorporInputs {
  std::vector<ModelSpec> models;  // in the order of Table 4: functions have them in turn
  MinuteCounts samples;           // 203 functions, 31 minutes
};
// NotFound, InvalidArgument: which file, and what is wrong with it.
[[nodiscard]] absl::StatusOr<TorporInputs> ReadTorporInputs(const std::string& data);

// Of the latency of a request that loads its model (002, 8: "similar to 30 %").
inline constexpr double kPilotLoading = 0.3;
// The models of Table 1. A load takes what the table has for the model and its runtime together. The paper prints no
// run times: each model's is such that loading is kPilotLoading of both. Errors as above.
[[nodiscard]] absl::StatusOr<std::vector<ModelSpec>> ReadPilotModels(const std::string& data);

// One p3.8xlarge of the paper: four V100 with their links.
[[nodiscard]] ClusterSpec TorporNode(std::vector<ModelSpec> models);
// The k-th of `functions` has the rates of the k-th sample, from the first again after the last.
[[nodiscard]] MinuteCounts TorporFunctions(const MinuteCounts& samples, std::uint32_t functions,
                                           std::uint32_t minutes);

// Functions of one model whose rates follow the samples, each with `rate` requests a minute on average.
[[nodiscard]] MinuteCounts ScaledFunctions(const MinuteCounts& samples, const std::string& model,
                                           std::uint32_t functions, double rate, std::uint32_t minutes);

// What the options leave of an experiment's minutes, sizes and presets.
[[nodiscard]] std::uint32_t MinutesOf(const ExperimentOptions& options, std::uint32_t usual);
[[nodiscard]] std::vector<std::uint32_t> SizesOf(const ExperimentOptions& options, std::uint32_t first,
                                                 std::uint32_t last, std::uint32_t step);
[[nodiscard]] std::vector<std::string> PresetsOf(const ExperimentOptions& options,
                                                 const std::vector<std::string>& usual);

// Table 4 has the run times of the paper's models over Torpor's remoting, and native ones. A row of an experiment is a
// preset, whose runs take the former (those of a function with a runtime of its own: the latter), or a preset and
// this: its runs take the native times, and a swap lengthens a run by as much as over the remoting. The paper prints
// no swap without its remoting.
inline constexpr std::string_view kAtNativeTimes = "@native";
// NotFound lists every preset. InvalidArgument: the row asks for native times, and its preset has them already.
[[nodiscard]] absl::StatusOr<SimPreset> PresetOfRow(std::string_view row);

// Each function has one instance, where it is for good: what finds no room is not served.
[[nodiscard]] bool BindsForGood(const std::string& row);

// The setup of one run: `cluster` under the preset of `row`, its nodes knowing from the begin what the models cost.
// Errors as of PresetOfRow.
[[nodiscard]] absl::StatusOr<SimulationSetup> TorporRun(ClusterSpec cluster, const MinuteCounts& counts,
                                                        Spread spread, const std::string& row,
                                                        std::uint64_t seed);

// The same with this many functions that are asked alike: `rate` requests a second for all of them together, at random times. The
// nodes learn from runs what the models cost.
[[nodiscard]] absl::StatusOr<SimulationSetup> TorporRunAlike(ClusterSpec cluster, std::uint32_t functions,
                                                             double rate, std::uint32_t minutes,
                                                             const std::string& row, std::uint64_t seed);

// What the requests took that were asked after the warm-up and served.
[[nodiscard]] std::vector<Duration> ServedLatencies(const Outcome& outcome);

// Of the functions that were asked after the warm-up: `compliant` (a share; the nearest-rank percentile of a
// function's latencies is within its deadline; what was not served is late), `executed` (functions of which a
// request was served), `late_cv`, `late_bert`, `p98_cv_ms` and `p98_bert_ms` (over all requests of a kind),
// loads per request from the host and from other GPUs by kind (`host_cv`, `peer_bert`, ...), and what the
// GPUs did.
[[nodiscard]] Summary TorporSummary(const SimulationSetup& setup, const Outcome& outcome);

}  // namespace troupe::sim

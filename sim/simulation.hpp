// SIMULATION: one run of a workload on a cluster under a preset: the production actors of a World, and what
// came of it. Deterministic: the same inputs give the same results and the same trace hash.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/policy.hpp"
#include "node/scheduling/scheduler_types.hpp"
#include "sim/cluster_file.hpp"
#include "sim/faults.hpp"
#include "sim/sandbox.hpp"
#include "sim/traces/workload.hpp"

namespace troupe::sim {

struct Progress {
  Duration at{};  // virtual
  std::uint64_t asked = 0;
  std::uint64_t answered = 0;
};

struct SimulationSetup {
  ClusterSpec cluster;
  Workload workload;
  PolicyNames policies;
  std::optional<Sandbox> sandbox{};  // empty: one worker a GPU, for all
  node::SchedulerLimits limits;
  std::uint64_t seed = 1;  // of policies that draw lots
  std::vector<Fault> faults{};
  bool profiled = false;  // the nodes know from the begin what each model's runs take
  // Functions leave it to the manager which parts of GPUs they own (quota_request: auto), by the policy `owning`. A part is
  // of the time, on all SMs: the GPUs here run one request after the other.
  bool may_own = false;
  // Each function brings a runtime of its own (ModelSpec::runtime), as the baselines have it that share no
  // worker.
  bool runtimes = false;
  // Asked now and then, with what there is: false ends the run early.
  std::function<bool(const Progress&)> go_on;
};

struct Answer {
  std::uint32_t function = 0;  // of a run of a workflow: the first
  std::int32_t code = 0;       // absl::StatusCode
  Duration at{};               // of the request, since the begin
  Duration took{};
  // Served; and within the deadline of its model, where it is a function's request and the model has one.
  bool in_time = false;
};
// How the requests ended; a run of a workflow is one.
struct RequestEnds {
  std::uint64_t arrived = 0, served = 0, rejected = 0, expired = 0, cancelled = 0, failed = 0;
  std::uint64_t waiting = 0;  // not answered at its end: only of a simulation that was ended early

  void Count(absl::StatusCode code);  // of an answer
};
// How models came onto GPUs.
struct ModelLoads {
  std::uint64_t misses = 0;        // served requests whose model was not there when a GPU got them
  std::uint64_t swaps = 0;         // loads that were ordered, those ahead of requests among them
  std::uint64_t false_misses = 0;  // of them: of a model that another GPU had
  std::uint64_t peer_swaps = 0;    // of them: copied from another GPU
  std::vector<std::uint64_t> from_host, from_peers;  // loads of each function's model
  double duplicates = 0;                             // GPUs with the most asked model, averaged over seconds
};
// How GPUs, links and memory were used.
struct MachineUse {
  double computing = 0;      // share of GPU time in runs
  double loading = 0;        // share of GPU time with a load on its way
  double link = 0;           // share of time in which a switch's link to the host was in use, averaged
  std::vector<double> gpus;  // share of time in runs of each, node by node
  Bytes gpu_memory{};        // of a GPU that sandboxes share, in use by them: averaged over seconds
};
struct Outcome : RequestEnds, ModelLoads, MachineUse {
  std::vector<Answer> answers;  // in the order in which they came
  Duration length{};            // until the last answer
  std::uint64_t connections_lost = 0;
  std::uint64_t starts = 0;  // of runtimes, since the first request
  std::uint64_t trace_hash = 0;
  bool ended_early = false;

  // arrived = served + rejected + expired + cancelled + failed + waiting; failed and waiting are zero unless
  // something was lost.
  [[nodiscard]] absl::Status Conserved() const;
  [[nodiscard]] Duration MeanLatency() const;                 // of those served
  [[nodiscard]] Duration LatencyAt(double percentile) const;  // nearest rank, of those served
  [[nodiscard]] double MissRatio() const;                     // of those served
  [[nodiscard]] double LoadsPerRequest() const;               // of those served
};

// InvalidArgument for what does not fit together.
[[nodiscard]] absl::StatusOr<Outcome> Simulate(const SimulationSetup& setup);

// The p-th percentile (0 to 100) by nearest rank; zero without values. Sorts them.
[[nodiscard]] Duration NearestRank(std::vector<Duration>& values, double percentile);

}  // namespace troupe::sim

// CLUSTER FILE: the simulated hardware and what the models cost on it, as YAML. Mistakes are told with their
// line and column.
//
//   nodes: 1                 gpus: 12 (of each node)      gpu-memory: 8GiB        host-memory: 64GiB
//   loads: pipelined         link: 12GB (a second, from the host, of each switch) topology: v100x4
//   timeout: 10m             host-copies: 2 (of each model, on different nodes)       gateways: 1 (asked in turn)
//   link-sharing: deadline (as the product does, or: shared, exclusive)
//   gpu-kinds: [{name: v100, count: 4, memory: 25GB, link: 12GB, speed: 1.0}]  instead of gpus and gpu-memory
//   network: {delay: 200us (one way), jitter: 50us (more), connection-timeout: 1s, reconnect: 100ms}
//   models: [{name: a, memory: 1GiB, run: 10ms, load: 1s, swapped: 15ms, deadline: 80ms, activations: 200MB,
//             runtime-memory: 1.6GB, cold-start: 8s, runtime-run: 12ms}]
//
// Without `network` messages between the members take no time.
// The last three are of a function with a runtime of its own (`native`, `infless-ka`): what it takes of a GPU
// with its model, its start, and a run in it. A GPU's `speed` divides the time of runs.
// A function of the trace that names no model is given the models in turn.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/swap/swap_policy.hpp"
#include "node/scheduling/topology.hpp"
#include "sim/network_options.hpp"
#include "sim/profiled_gpu.hpp"
#include "sim/traces/workload.hpp"

namespace troupe::sim {

// A runtime that a function has for itself, as foreign systems start one for each: nothing of it is shared.
struct RuntimeSpec {
  Bytes footprint{};      // of a GPU: the runtime with its model; zero: as without one
  Duration cold_start{};  // until it answers
  Duration run{};         // zero: as without one
};
// Whether a preset is of systems that do so (native, infless-ka).
[[nodiscard]] bool BringsRuntimes(std::string_view preset);

struct ModelSpec {
  std::string name;
  Bytes memory{};  // of a GPU, for weights and runs
  ModelTimes times;
  Duration deadline{};  // zero: none
  Bytes activations{};  // at their peak, beside `memory`; what is kept of them is the sandbox's
                        // (sim/sandbox.hpp)
  RuntimeSpec runtime{};
};
// GPUs of one kind, next to each other in a node. What the models take was measured where `speed` is 1.
struct GpuKind {
  std::string name;
  std::uint32_t count = 1;
  Bytes memory{};
  BytesPerSecond link{};  // from the host; zero: the cluster's
  double speed = 1;       // of runs
};
// Which node has GPUs of which kind: each node some of every kind, in order; or node after node one kind, in turn.
enum class KindsAre { kInEachNode, kInNodesByTurn };
struct ClusterSpec {
  std::uint32_t nodes = 1;
  std::uint32_t gpus = 1;  // of each node
  Bytes gpu_memory = GiB(8);
  std::vector<GpuKind> kinds;  // empty: `gpus` alike
  KindsAre kinds_are = KindsAre::kInEachNode;
  Bytes host_memory = GiB(64);
  LoadMode loads = LoadMode::kPipelined;
  BytesPerSecond link{12e9};
  // By whom a switch's link is used. Even shares are the plain hardware's; the product's default is by
  // deadline.
  gpu::LinkSharing link_sharing = gpu::LinkSharing::kShared;
  Turns run_turns = Turns::kArrival;  // of a GPU's runs; a file has them by deadline where links are
  node::Topology topology;
  Duration timeout = std::chrono::minutes(10);
  std::optional<NetworkOptions> network{};
  std::uint32_t host_copies = 2;  // of each function's model, on as many nodes
  std::uint32_t gateways = 1;     // they get the requests in turn
  std::vector<ModelSpec> models;

  // `node` counts from 0.
  [[nodiscard]] GpuKind KindOf(std::uint32_t node, std::uint32_t gpu) const;
  [[nodiscard]] Bytes LargestMemory() const;
};

// `name` is what the messages call the file. InvalidArgument: NAME:LINE:COLUMN and what was expected.
[[nodiscard]] absl::StatusOr<ClusterSpec> ParseCluster(std::string_view text, const std::string& name);
// NotFound when there is no such file.
[[nodiscard]] absl::StatusOr<ClusterSpec> ReadCluster(const std::string& path);

// Each function's place in `models`. InvalidArgument names a model that is not there.
[[nodiscard]] absl::StatusOr<std::vector<std::size_t>> AssignModels(
    const ClusterSpec& cluster, const std::vector<TraceFunction>& functions);

}  // namespace troupe::sim

// CLUSTER FILE: the simulated hardware and what the models cost on it, as YAML. Mistakes are told with their
// line and column.
//
//   nodes: 1                 gpus: 12 (of each node)      gpu-memory: 8GiB        host-memory: 64GiB
//   loads: pipelined         link: 12GB (a second, from the host, of each switch) topology: v100x4
//   timeout: 10m             models: [{name: a, memory: 1GiB, run: 10ms, load: 1s, swapped: 15ms, deadline:
//   80ms, activations: 200MB}]
//   network: {delay: 200us (one way), jitter: 50us (more), connection-timeout: 1s, reconnect: 100ms}
//
// Without `network` messages between the members take no time.
// A function of the trace that names no model is given the models in turn.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "node/topology.hpp"
#include "sim/network_options.hpp"
#include "sim/profiled_gpu.hpp"
#include "sim/traces/workload.hpp"

namespace troupe::sim {

struct ModelSpec {
  std::string name;
  Bytes memory{};  // of a GPU, for weights and runs
  ModelTimes times;
  Duration deadline{};  // zero: none
  Bytes activations{};  // at their peak, beside `memory`; what is kept of them is the sandbox's
                        // (sim/sandbox.hpp)
};
struct ClusterSpec {
  std::uint32_t nodes = 1;
  std::uint32_t gpus = 1;  // of each node
  Bytes gpu_memory = GiB(8);
  Bytes host_memory = GiB(64);
  LoadMode loads = LoadMode::kPipelined;
  BytesPerSecond link{12e9};
  node::Topology topology;
  Duration timeout = std::chrono::minutes(10);
  std::optional<NetworkOptions> network{};
  std::vector<ModelSpec> models;
};

// `name` is what the messages call the file. InvalidArgument: NAME:LINE:COLUMN and what was expected.
[[nodiscard]] absl::StatusOr<ClusterSpec> ParseCluster(std::string_view text, const std::string& name);
// NotFound when there is no such file.
[[nodiscard]] absl::StatusOr<ClusterSpec> ReadCluster(const std::string& path);

// Each function's place in `models`. InvalidArgument names a model that is not there.
[[nodiscard]] absl::StatusOr<std::vector<std::size_t>> AssignModels(
    const ClusterSpec& cluster, const std::vector<TraceFunction>& functions);

}  // namespace troupe::sim

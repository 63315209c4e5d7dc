// What the runtimes of a node are to an isolation key, and as a whole.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "node/scheduling/gpu.hpp"

namespace troupe::node {

using GpuMap = std::map<GpuIndex, Gpu>;

// A runtime with this key that is ready, on this device or on any; and a runtime that will be.
[[nodiscard]] bool Served(const GpuMap& gpus, const std::string& key, std::optional<std::uint32_t> device);
[[nodiscard]] bool Coming(const GpuMap& gpus, const std::string& key);
// A runtime of this device is started for some key.
[[nodiscard]] bool ComingOn(const GpuMap& gpus, std::uint32_t device);
// When the latest runtime of this device became ready.
[[nodiscard]] Time LatestStart(const GpuMap& gpus, std::uint32_t device);
// A worker is being started, for no particular key.
[[nodiscard]] bool Starting(const GpuMap& gpus);
// Nothing is in flight, on its way or read there: its worker may be taken away.
[[nodiscard]] bool Takeable(const Gpu& gpu);
// The same, but for outputs that lie there: they are lost with its worker.
[[nodiscard]] bool TakeableWithLoss(const Gpu& gpu);
// The idle models on the GPU whose functions have a state there, or may have one that this node has not read. The worker
// may end when these states have been written back.
[[nodiscard]] std::vector<ModelId> WithStates(const Gpu& gpu);
[[nodiscard]] bool AllUnfit(const GpuMap& gpus);        // also true without GPUs
[[nodiscard]] Bytes LargestMemory(const GpuMap& gpus);  // over GPUs that are not unfit

}  // namespace troupe::node

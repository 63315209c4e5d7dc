// Starting a GPU worker, and the shared things that the daemon makes for its workers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/device/device_settings.hpp"
#include "transport/link_state.hpp"
#include "transport/liveness.hpp"
#include "transport/memory_file.hpp"

namespace troupe::gpu {

// How a worker computes and moves models: what an operator sets once for all workers of a node. The daemon's
// configuration holds one of these, and hands it to each worker as it is.
struct WorkerSettings {
  ComputeMode compute = ComputeMode::kReal;
  std::string profile{};          // file of times for timed compute; empty: none
  std::uint32_t threads = 1;      // of each run
  std::uint32_t concurrency = 1;  // runs without a share of the SMs that compute at a time
  std::uint32_t sms = 0;          // of a virtual GPU; 0: the worker's default
  Duration lease = std::chrono::seconds(30);
  bool allow_faults = false;
  WeightAddresses addresses = WeightAddresses::kAdjacent;
  RepeatedLaunch repeated = RepeatedLaunch::kReplayed;
  KernelForm kernels = KernelForm::kWhole;
  // When one of these is empty or zero, the worker has its own default.
  std::string memory{};         // gpu/memory/memory_policy.hpp has the names
  std::string swap{};           // gpu/swap/swap_policy.hpp has the names
  std::string link_sharing{};   // and these
  std::string sharing{};        // gpu/sharing/sharing_policy.hpp has the names
  std::string intermediates{};  // gpu/memory/intermediates.hpp has the names
  Duration quota_window{};
  Bytes group{};            // of the swap pipeline, instead of what the probe finds
  Bytes block{};            // of link sharing
  std::uint32_t batch = 0;  // of blocks
};

// The flags of troupe-gpu-worker.
struct WorkerCommand : WorkerSettings {
  std::string program;  // path of troupe-gpu-worker
  std::string device = "virtual:0";
  std::string socket;  // at most 100 bytes, as Unix sockets have it
  std::string node;
  std::uint32_t gpu = 0;
  Bytes quota;         // of device memory; zero: all of it
  std::string gate{};  // file that the workers of one GPU share (GatePage); empty: there is one worker
  std::uint32_t gate_slot = 0;
  Bytes arena = MiB(256);  // of outputs that were not read yet
  int log = -1;            // descriptor of its stdout and stderr; -1: ours
  // Each thread of every run has a core: between two steps a thread waits awake for the others.
  bool cores_for_all = false;
  [[nodiscard]] std::vector<std::string> Arguments() const;
  // What the process reads while it is loaded, on top of ours.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> Environment() const;
};

// Starts the worker in a session of its own. It can be adopted a few milliseconds later: Adopt waits for
// that.
absl::StatusOr<transport::ProcessHandle> StartWorker(const WorkerCommand& command);

// The memory of one virtual GPU. `touch` writes every page now (0.7-3.4 s for a GiB), else on first use; give
// it to each worker of this GPU in turn, so that a restarted one is up at once.
absl::StatusOr<transport::MemoryFile> CreateVirtualMemory(std::uint32_t gpu, Bytes size);
void TouchMemory(const transport::MemoryFile& memory);

// A link between two GPUs, each direction with this bandwidth.
struct PeerLink {
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  BytesPerSecond bandwidth;
};

// The links of one node: "gpu<N>:in" and "gpu<N>:out" for each GPU. `switches`: GPUs that share one on their
// way to the host, which has the same bandwidth ("switch<N>:in", "switch<N>:out"). `peers`: links of their
// own between GPUs ("gpu<N>:gpu<M>", and the other way round). `copy_time`: for which each copy occupies its link, or the
// links between GPUs, besides the time of its bytes.
absl::StatusOr<transport::LinkBuckets> CreateNodeLinks(
    std::uint32_t gpus, BytesPerSecond bandwidth,
    const std::vector<std::vector<std::uint32_t>>& switches = {}, const std::vector<PeerLink>& peers = {},
    Duration copy_time = {});
[[nodiscard]] std::string LinkInName(std::uint32_t gpu);
[[nodiscard]] std::string LinkOutName(std::uint32_t gpu);
[[nodiscard]] std::string PeerLinkName(std::uint32_t from, std::uint32_t to);

}  // namespace troupe::gpu

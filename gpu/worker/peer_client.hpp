// PEER CLIENT: asks other workers of the node for what they have pinned for a copy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/device/device.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/task_queue.hpp"
#include "proto/worker.pb.h"
#include "transport/local_channel.hpp"

namespace troupe::gpu {

// A model or a tensor that the worker of another GPU, the source, has pinned.
struct PinnedSource {
  std::uint32_t gpu = 0;
  proto::ArenaRef memory;
  std::vector<SharedRange::Part> parts;              // of its bytes, in order; they may lie anywhere
  std::shared_ptr<transport::LocalChannel> channel;  // the session's, which reaches that worker
};
// What an order says of it. InvalidArgument when that is not `size` bytes, or in more ranges than are taken.
[[nodiscard]] absl::StatusOr<PinnedSource> ReadPinned(std::uint32_t gpu, const proto::PinnedMemory& pinned,
                                                      Bytes size, const WorkerLimits& limits);

// One thread that asks, since a worker may answer late or never. The range may be
// read at any time once it was opened, but its bytes count only when Confirm, called after they were copied,
// says that it was still pinned then. Any thread may call; it ends before what `then` uses.
class PeerClient {
 public:
  using Opened = std::function<void(absl::StatusOr<std::shared_ptr<const PeerMemory>>)>;
  using Confirmed = std::function<void(const absl::Status&)>;
  explicit PeerClient(Device& device) : device_(device) {}
  // Unavailable: the source is gone, or has unpinned it. `then` on the client's thread.
  void Open(const PinnedSource& source, Opened then);
  void Confirm(const PinnedSource& source, Confirmed then);

 private:
  Device& device_;
  TaskThread thread_;
};

}  // namespace troupe::gpu

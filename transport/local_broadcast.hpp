// Broadcasts over shared memory: the fake of NCCL's, and what virtual GPUs do.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "transport/broadcast.hpp"
#include "transport/link_state.hpp"
#include "transport/memory_file.hpp"

namespace troupe::transport {

// The sender puts bytes into a window that all members map, and goes on when the slowest has taken them. The
// identity says where the window is among the sender's descriptors, so that nothing is left behind by a
// process that dies; whoever waits looks whether its partners live.
class LocalBroadcaster final : public Broadcaster {
 public:
  // A way that bytes take from the sender to here: they arrive at its pace. Empty: as fast as memory is.
  struct Way {
    std::shared_ptr<LinkBuckets> links;
    std::vector<std::size_t> path;
  };
  using FindWay = std::function<absl::StatusOr<Way>(std::uint32_t from)>;
  explicit LocalBroadcaster(FindWay way = nullptr) : way_(std::move(way)) {}

  absl::StatusOr<std::string> NewId() override;
  absl::StatusOr<std::unique_ptr<BroadcastEnd>> Join(const BroadcastSeat& seat, Duration patience) override;

 private:
  // Identities that were made and not joined; the oldest goes for a new one.
  static constexpr std::size_t kOpen = 16;
  absl::StatusOr<MemoryFile> WindowOf(const BroadcastSeat& seat);
  const FindWay way_;
  std::mutex mutex_;
  std::deque<std::pair<std::string, MemoryFile>> open_;  // guarded by mutex_
};

}  // namespace troupe::transport

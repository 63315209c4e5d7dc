// Broadcasts over shared memory: the fake of NCCL's, and what virtual GPUs do.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "transport/arena_server.hpp"
#include "transport/broadcast.hpp"
#include "transport/link_state.hpp"
#include "transport/memory_file.hpp"

namespace troupe::transport {

// The sender puts bytes into a window that all members map, and goes on when the slowest has taken them. The
// identity says where the window is handed out, and a window is memory without a name, so that a process that
// dies leaves nothing behind. A waiting member looks whether its partners live.
class LocalBroadcaster final : public Broadcaster {
 public:
  // A way that bytes take from the sender to here: they arrive at its pace. Empty: as fast as memory is.
  struct Way {
    std::shared_ptr<LinkBuckets> links;
    std::vector<std::size_t> path;
  };
  using FindWay = std::function<absl::StatusOr<Way>(std::uint32_t from)>;
  // `socket`: a path where windows are handed out, from the first on; each process has its own. Empty: they
  // are found among the sender's descriptors, which a jail forbids to look at.
  explicit LocalBroadcaster(FindWay way = nullptr, std::string socket = {})
      : way_(std::move(way)), socket_(std::move(socket)) {}

  absl::StatusOr<std::string> NewId() override;
  absl::StatusOr<std::unique_ptr<BroadcastEnd>> Join(const BroadcastSlot& slot, Duration patience) override;

 private:
  // Identities that were made and not joined; the oldest goes for a new one.
  static constexpr std::size_t kOpen = 16;
  struct Window {
    std::string id;
    MemoryFile memory;
    std::shared_ptr<const void> shown;  // handed out for as long as this lives
  };
  absl::StatusOr<Window> WindowOf(const BroadcastSlot& slot);
  absl::Status Show(Window& window, std::uint64_t unique);
  const FindWay way_;
  const std::string socket_;
  std::mutex mutex_;
  std::shared_ptr<ArenaServer> server_;  // guarded by mutex_, as the next
  std::deque<Window> open_;
};

}  // namespace troupe::transport

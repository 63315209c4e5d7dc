// Memory of this GPU as descriptors for the workers of other ones.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/cuda/memory.hpp"
#include "gpu/device/device.hpp"
#include "transport/unix_socket.hpp"

namespace troupe::gpu::cuda {

// A descriptor for each unit under a range. They go through a socket, whose other end is what is given away: so
// one descriptor carries them all. It can be read once. A process may have few descriptors, and a model many
// units: so they are exported in rounds (peers.hpp), the first when the range is shared, the next when the
// destination asks for it, by a thread that runs from the first export of more than one round on. An export that
// its destination has closed is forgotten. Thread-safe; ends before the memory.
class PeerExports {
 public:
  // That have rounds left; one more is refused with ResourceExhausted. Descriptors on their way count towards a
  // limit of the user's.
  static constexpr std::size_t kMost = 8;
  PeerExports(const Context& context, const Memory& memory) : context_(context), memory_(memory) {}
  ~PeerExports();
  PeerExports(const PeerExports&) = delete;
  PeerExports& operator=(const PeerExports&) = delete;

  absl::StatusOr<SharedRange> Export(const DeviceRange& range);

 private:
  struct Waiting {
    transport::UnixConnection destination;
    std::vector<UnitHandle> units;  // all of them
    std::size_t sent = 0;
  };
  absl::Status SendRound(Waiting& waiting) const;
  absl::Status Wait(Waiting waiting);
  void Serve();
  [[nodiscard]] bool Answer(Waiting& waiting) const;

  const Context& context_;
  const Memory& memory_;
  std::mutex mutex_;
  std::vector<Waiting> new_;     // guarded by mutex_, as all below: the thread has not seen them yet
  std::size_t waiting_ = 0;      // those that the thread has seen, too
  transport::UniqueFd changed_;  // an eventfd, from the first wait on
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace troupe::gpu::cuda

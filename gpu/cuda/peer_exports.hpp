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

// Each unit under a range has a descriptor, and all of them go through one socket: its other end is the one descriptor that
// the destination is given, and can be read once. A process may open few descriptors, and a model has many units, so they are
// exported in rounds (peers.hpp). The first round is sent when the range is shared. A thread, which begins with the first
// export of more than one round, sends the next ones as the destination asks for them, and forgets an export whose
// destination has closed its end. Thread-safe; ends before the memory.
class PeerExports {
 public:
  // So many exports may have rounds left; one more is refused with ResourceExhausted. The kernel counts descriptors on
  // their way in a socket towards a limit of the user's.
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
  // All below is guarded by mutex_.
  std::vector<Waiting> new_;     // exports that the thread has not seen yet
  std::size_t waiting_ = 0;      // exports with rounds left, whether the thread has seen them or not
  transport::UniqueFd changed_;  // an eventfd, from the first wait on
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace troupe::gpu::cuda

// A communicator of NCCL with its stream, and a few of them that are kept from one broadcast to the next.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "gpu/cuda/context.hpp"
#include "gpu/cuda/nccl.hpp"
#include "transport/broadcast.hpp"

namespace troupe::gpu::cuda {

// One member's part of a communicator, non-blocking: each wait here ends, whatever a partner does, and then
// the communicator is aborted, which ends its kernels. Its ranks are the places of its members in ascending
// order, so that any of them can send. One thread at a time; Abort from any.
//   joined <-(Broadcast, Meet)-> joined          joined -(an error, Abort)-> broken
class NcclCommunicator {
 public:
  NcclCommunicator(Context& context, const Nccl& nccl) : context_(context), nccl_(nccl) {}
  // Waits for no partner.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Blocks until all members of the slot have joined with this identity.
  absl::Status Join(const NcclUniqueId& id, const transport::BroadcastSlot& slot, Duration patience);
  // The piece of GPU `sender`, at all others. Blocks.
  absl::Status Broadcast(std::uint32_t sender, std::span<std::byte> piece, Duration patience);
  // Blocks until all members have called it. `byte` lies on the GPU and is written to.
  absl::Status Meet(CUdeviceptr byte, Duration patience);
  // What is waited for here, and everything later, ends soon with an error.
  void Abort() { aborted_ = true; }

  // False when it is broken, or NCCL says that a partner is.
  [[nodiscard]] bool sound() const;
  [[nodiscard]] const NcclUniqueId& id() const { return id_; }
  [[nodiscard]] const std::vector<std::uint32_t>& members() const { return members_; }

 private:
  absl::Status Failed(int result, const char* doing) const;
  template <class Ready>
  absl::Status Await(const char* doing, Duration patience, Ready ready);
  // What a call that goes on behind its return came to. After an error the communicator is gone.
  absl::Status Settle(int result, const char* doing, Duration patience);
  absl::Status AwaitStream(const char* doing, Duration patience);
  void Break();

  Context& context_;
  const Nccl& nccl_;
  NcclUniqueId id_{};
  std::vector<std::uint32_t> members_;  // ascending
  CUstream stream_ = nullptr;
  NcclComm comm_ = nullptr;  // null: not joined, or broken
  std::atomic<bool> aborted_ = false;
};

// Communicators between broadcasts, at most kMost: each has buffers on the GPU. Beyond that the communicator that was
// used longest ago is let go. Thread-safe.
class NcclCommunicators {
 public:
  static constexpr std::size_t kMost = 4;
  using Members = std::vector<std::uint32_t>;  // in any order
  // Null when there is none for these members, or not with this identity; `id` null: with any.
  std::unique_ptr<NcclCommunicator> Take(const Members& members, const NcclUniqueId* id);
  void Put(std::unique_ptr<NcclCommunicator> communicator);
  // The identity of the communicator for these members; "" when none is kept. A communicator that is not sound is let go.
  [[nodiscard]] std::string IdFor(const Members& members);

 private:
  using Kept = std::list<std::unique_ptr<NcclCommunicator>>;
  std::mutex mutex_;
  Kept kept_;  // guarded by mutex_; the one used last is the last one
};

}  // namespace troupe::gpu::cuda

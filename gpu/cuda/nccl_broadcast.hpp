// Broadcasts between GPUs over NCCL.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/cuda/context.hpp"
#include "gpu/cuda/nccl.hpp"
#include "gpu/cuda/nccl_communicator.hpp"
#include "transport/broadcast.hpp"

namespace troupe::gpu::cuda {

// The communicator of a broadcast that all members have finished is kept for the next one between them,
// whichever of them sends. A communicator that a member broke, or left, is aborted. Device memory that NCCL takes for
// its buffers comes beside what this process has taken for models.
class NcclBroadcaster final : public transport::Broadcaster {
 public:
  NcclBroadcaster(Context& context, std::string library) : context_(context), library_(std::move(library)) {}
  ~NcclBroadcaster() override;

  // Opens the library when it is first asked: OK, or why there is none.
  absl::Status Ready();
  absl::StatusOr<std::string> NewId() override;
  [[nodiscard]] std::string Kept(const std::vector<std::uint32_t>& members) override;
  absl::StatusOr<std::unique_ptr<transport::BroadcastEnd>> Join(const transport::BroadcastSlot& slot,
                                                                Duration patience) override;

 private:
  absl::Status Open();

  Context& context_;
  const std::string library_;
  std::mutex mutex_;
  absl::Status loaded_ = absl::UnknownError("");  // guarded by mutex_; Unknown: not tried yet
  std::unique_ptr<const Nccl> nccl_;              // does not change once it is there, as the next
  CUdeviceptr meeting_ = 0;                       // the byte with which members wait for each other
  NcclCommunicators kept_;
};

}  // namespace troupe::gpu::cuda

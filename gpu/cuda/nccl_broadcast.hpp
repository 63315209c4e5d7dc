// Broadcasts between GPUs over NCCL.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "gpu/cuda/context.hpp"
#include "gpu/cuda/nccl.hpp"
#include "transport/broadcast.hpp"

namespace troupe::gpu::cuda {

// A communicator for each broadcast, non-blocking: whatever a partner does, each wait here ends, and then the
// communicator is aborted, which ends its kernels. Each end has a CUDA stream of its own. Device memory that
// NCCL takes for its buffers comes beside what this process has taken for models.
class NcclBroadcaster final : public transport::Broadcaster {
 public:
  NcclBroadcaster(Context& context, std::string library) : context_(context), library_(std::move(library)) {}

  // Opens the library when it is first asked: OK, or why there is none.
  absl::Status Ready();
  absl::StatusOr<std::string> NewId() override;
  absl::StatusOr<std::unique_ptr<transport::BroadcastEnd>> Join(const transport::BroadcastSlot& slot,
                                                                Duration patience) override;

 private:
  Context& context_;
  const std::string library_;
  std::mutex mutex_;
  absl::Status loaded_ = absl::UnknownError("");  // guarded by mutex_; Unknown: not tried yet
  std::unique_ptr<const Nccl> nccl_;              // does not change once it is there
};

}  // namespace troupe::gpu::cuda

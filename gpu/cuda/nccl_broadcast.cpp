#include "gpu/cuda/nccl_broadcast.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::cuda {
namespace {

using transport::SteadyNow;

// A piece over NVLink takes this long: until then the GPU is asked without a pause, later in pauses.
constexpr Duration kSpin = std::chrono::microseconds(100);
constexpr Duration kPause = std::chrono::microseconds(50);
// Its kernels wait on the GPU for pieces that are on their way: they must take few SMs from the runs that
// compute.
constexpr int kMostBlocks = 4;

class NcclEnd final : public transport::BroadcastEnd {
 public:
  NcclEnd(Context& context, const Nccl& nccl, Duration patience)
      : context_(context), nccl_(nccl), patience_(patience) {}
  // A communicator that was finalized is given back here alone; another one would wait for its partners.
  ~NcclEnd() override {
    context_.Enter();
    if (comm_ != nullptr && finished_) (void)nccl_.ncclCommDestroy(comm_);
    if (!finished_) Break();
    if (stream_ != nullptr) (void)context_.driver().cuStreamDestroy(stream_);
  }

  absl::Status Join(const transport::BroadcastSlot& slot) {
    context_.Enter();
    TROUPE_RETURN_IF_ERROR(context_.Check(context_.driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING),
                                          "making a broadcast's stream"));
    NcclUniqueId id{};
    std::memcpy(id.internal, slot.id.data(), std::min(slot.id.size(), sizeof(id.internal)));
    NcclConfig config;
    config.blocking = 0;
    config.max_ctas = kMostBlocks;
    const int begun = nccl_.ncclCommInitRankConfig(&comm_, static_cast<int>(slot.members.size()), id,
                                                   static_cast<int>(slot.rank), &config);
    return Settle(begun, "joining a broadcast");
  }

  absl::Status Pass(std::span<std::byte> piece) override {
    context_.Enter();
    if (comm_ == nullptr) return absl::UnavailableError("this broadcast is broken");
    TROUPE_RETURN_IF_ERROR(
        Settle(nccl_.ncclBroadcast(piece.data(), piece.data(), piece.size(), kNcclUint8, 0, comm_, stream_),
               "broadcasting a piece"));
    const absl::Status passed = AwaitStream();
    if (!passed.ok()) Break();
    return passed;
  }

  absl::Status Finish() override {
    context_.Enter();
    if (comm_ == nullptr) return absl::UnavailableError("this broadcast is broken");
    TROUPE_RETURN_IF_ERROR(Settle(nccl_.ncclCommFinalize(comm_), "finishing a broadcast"));
    finished_ = true;
    return absl::OkStatus();
  }

  void Abort() override { aborted_ = true; }

 private:
  absl::Status Failed(int result, const char* doing) const {
    return absl::UnavailableError(absl::StrCat(doing, ": NCCL says ", nccl_.ncclGetErrorString(result)));
  }
  // Waits as long as `ready` says false, asking NCCL how it stands.
  template <class Ready>
  absl::Status Await(const char* doing, Ready ready) {
    const Time begin = SteadyNow();
    for (;;) {
      TROUPE_ASSIGN_OR_RETURN(const bool there, ready());
      if (there) return absl::OkStatus();
      if (aborted_) return absl::UnavailableError("the broadcast was aborted here");
      TROUPE_RETURN_IF_ERROR(context_.health());
      const Duration waited = SteadyNow() - begin;
      if (waited > patience_) {
        return absl::DeadlineExceededError(
            absl::StrCat(doing, ": no partner moved for ", FormatDuration(patience_)));
      }
      if (waited > kSpin) std::this_thread::sleep_for(kPause);
    }
  }

  // What a call that goes on behind its return came to. After an error the communicator is gone.
  absl::Status Settle(int result, const char* doing) {
    absl::Status settled = absl::OkStatus();
    if (result == kNcclInProgress) {
      settled = Await(doing, [&]() -> absl::StatusOr<bool> {
        int state = kNcclSuccess;
        const int asked = nccl_.ncclCommGetAsyncError(comm_, &state);
        if (asked != kNcclSuccess) return Failed(asked, doing);
        if (state == kNcclInProgress) return false;
        if (state != kNcclSuccess) return Failed(state, doing);
        return true;
      });
    } else if (result != kNcclSuccess) {
      settled = Failed(result, doing);
    }
    if (!settled.ok()) Break();
    return settled;
  }

  absl::Status AwaitStream() {
    TROUPE_ASSIGN_OR_RETURN(const EventHandle end, context_.MakeEvent());
    TROUPE_RETURN_IF_ERROR(
        context_.Check(context_.driver().cuEventRecord(end.get(), stream_), "recording an event"));
    return Await("broadcasting a piece", [&]() -> absl::StatusOr<bool> {
      const CUresult reached = context_.driver().cuEventQuery(end.get());
      int state = kNcclSuccess;
      const int asked = nccl_.ncclCommGetAsyncError(comm_, &state);
      if (asked != kNcclSuccess) return Failed(asked, "a partner");
      if (state != kNcclSuccess && state != kNcclInProgress) return Failed(state, "a partner");
      if (reached == CUDA_ERROR_NOT_READY) return false;
      TROUPE_RETURN_IF_ERROR(context_.CheckWork(reached, "broadcasting"));
      return true;
    });
  }

  // Its kernels end, and with them what they write.
  void Break() {
    if (comm_ == nullptr) return;
    (void)nccl_.ncclCommAbort(std::exchange(comm_, nullptr));
    EventHandle end;
    const auto made = context_.MakeEvent();
    if (!made.ok()) return;
    end = *made;
    if (context_.driver().cuEventRecord(end.get(), stream_) == CUDA_SUCCESS)
      (void)context_.driver().cuEventSynchronize(end.get());
  }

  Context& context_;
  const Nccl& nccl_;
  const Duration patience_;
  CUstream stream_ = nullptr;
  NcclComm comm_ = nullptr;
  std::atomic<bool> aborted_ = false;
  bool finished_ = false;
};

}  // namespace

absl::Status NcclBroadcaster::Ready() {
  const std::lock_guard lock(mutex_);
  if (!absl::IsUnknown(loaded_)) return loaded_;
  context_.Enter();
  absl::StatusOr<std::unique_ptr<const Nccl>> nccl = Nccl::Load(library_);
  loaded_ = nccl.status();
  if (nccl.ok()) nccl_ = *std::move(nccl);
  return loaded_;
}

absl::StatusOr<std::string> NcclBroadcaster::NewId() {
  TROUPE_RETURN_IF_ERROR(Ready());
  context_.Enter();
  NcclUniqueId id{};
  static_assert(sizeof(id.internal) <= kIdBytes);
  const int made = nccl_->ncclGetUniqueId(&id);
  if (made != kNcclSuccess) {
    return absl::UnavailableError(
        absl::StrCat("beginning a broadcast: NCCL says ", nccl_->ncclGetErrorString(made)));
  }
  return std::string(id.internal, sizeof(id.internal));
}

absl::StatusOr<std::unique_ptr<transport::BroadcastEnd>> NcclBroadcaster::Join(
    const transport::BroadcastSlot& slot, Duration patience) {
  TROUPE_RETURN_IF_ERROR(transport::CheckSlot(slot));
  TROUPE_RETURN_IF_ERROR(Ready());
  auto end = std::make_unique<NcclEnd>(context_, *nccl_, patience);
  TROUPE_RETURN_IF_ERROR(end->Join(slot));
  return end;
}

}  // namespace troupe::gpu::cuda

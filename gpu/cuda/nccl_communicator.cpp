#include "gpu/cuda/nccl_communicator.hpp"

#include <algorithm>
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

int RankOf(std::uint32_t gpu, const std::vector<std::uint32_t>& ascending) {
  return static_cast<int>(std::ranges::lower_bound(ascending, gpu) - ascending.begin());
}

std::vector<std::uint32_t> Ascending(std::vector<std::uint32_t> members) {
  std::ranges::sort(members);
  return members;
}

}  // namespace

NcclCommunicator::~NcclCommunicator() {
  context_.Enter();
  Break();
  if (stream_ != nullptr) (void)context_.driver().cuStreamDestroy(stream_);
}

absl::Status NcclCommunicator::Join(const NcclUniqueId& id, const transport::BroadcastSlot& slot,
                                    Duration patience) {
  context_.Enter();
  TROUPE_RETURN_IF_ERROR(context_.Check(context_.driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING),
                                        "making a broadcast's stream"));
  id_ = id;
  members_ = Ascending(slot.members);
  NcclConfig config;
  config.blocking = 0;
  config.max_ctas = kMostBlocks;
  const int begun = nccl_.ncclCommInitRankConfig(&comm_, static_cast<int>(members_.size()), id_,
                                                 RankOf(slot.members[slot.rank], members_), &config);
  return Settle(begun, "joining a broadcast", patience);
}

absl::Status NcclCommunicator::Broadcast(std::uint32_t sender, std::span<std::byte> piece,
                                         Duration patience) {
  constexpr const char* kDoing = "broadcasting a piece";
  context_.Enter();
  if (comm_ == nullptr) return absl::UnavailableError("this broadcast is broken");
  const int begun = nccl_.ncclBroadcast(piece.data(), piece.data(), piece.size(), kNcclUint8,
                                        RankOf(sender, members_), comm_, stream_);
  TROUPE_RETURN_IF_ERROR(Settle(begun, kDoing, patience));
  return AwaitStream(kDoing, patience);
}

absl::Status NcclCommunicator::Meet(CUdeviceptr byte, Duration patience) {
  constexpr const char* kDoing = "finishing a broadcast";
  context_.Enter();
  if (comm_ == nullptr) return absl::UnavailableError("this broadcast is broken");
  auto* const at = reinterpret_cast<void*>(byte);
  TROUPE_RETURN_IF_ERROR(
      Settle(nccl_.ncclAllReduce(at, at, 1, kNcclUint8, kNcclMax, comm_, stream_), kDoing, patience));
  return AwaitStream(kDoing, patience);
}

bool NcclCommunicator::sound() const {
  if (comm_ == nullptr || aborted_) return false;
  context_.Enter();
  int state = kNcclSuccess;
  return nccl_.ncclCommGetAsyncError(comm_, &state) == kNcclSuccess && state == kNcclSuccess;
}

absl::Status NcclCommunicator::Failed(int result, const char* doing) const {
  return absl::UnavailableError(absl::StrCat(doing, ": NCCL says ", nccl_.ncclGetErrorString(result)));
}

// Waits as long as `ready` says false, asking NCCL how it stands.
template <class Ready>
absl::Status NcclCommunicator::Await(const char* doing, Duration patience, Ready ready) {
  const Time begin = SteadyNow();
  for (;;) {
    TROUPE_ASSIGN_OR_RETURN(const bool there, ready());
    if (there) return absl::OkStatus();
    if (aborted_) return absl::UnavailableError("the broadcast was aborted here");
    TROUPE_RETURN_IF_ERROR(context_.health());
    const Duration waited = SteadyNow() - begin;
    if (waited > patience) {
      return absl::DeadlineExceededError(
          absl::StrCat(doing, ": no partner moved for ", FormatDuration(patience)));
    }
    if (waited > kSpin) std::this_thread::sleep_for(kPause);
  }
}

absl::Status NcclCommunicator::Settle(int result, const char* doing, Duration patience) {
  absl::Status settled = absl::OkStatus();
  if (result == kNcclInProgress) {
    settled = Await(doing, patience, [&]() -> absl::StatusOr<bool> {
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

absl::Status NcclCommunicator::AwaitStream(const char* doing, Duration patience) {
  const absl::StatusOr<EventHandle> end = context_.Record(stream_);
  absl::Status reached = end.status();
  if (end.ok()) {
    reached = Await(doing, patience, [&]() -> absl::StatusOr<bool> {
      const CUresult asked = context_.driver().cuEventQuery(end->get());
      int state = kNcclSuccess;
      const int told = nccl_.ncclCommGetAsyncError(comm_, &state);
      if (told != kNcclSuccess) return Failed(told, "a partner");
      if (state != kNcclSuccess && state != kNcclInProgress) return Failed(state, "a partner");
      if (asked == CUDA_ERROR_NOT_READY) return false;
      TROUPE_RETURN_IF_ERROR(context_.CheckWork(asked, doing));
      return true;
    });
  }
  if (!reached.ok()) Break();
  return reached;
}

// Its kernels end, and with them what they write.
void NcclCommunicator::Break() {
  if (comm_ == nullptr) return;
  (void)nccl_.ncclCommAbort(std::exchange(comm_, nullptr));
  const absl::StatusOr<EventHandle> end = context_.Record(stream_);
  if (end.ok()) context_.Await(*end).IgnoreError();
}

std::unique_ptr<NcclCommunicator> NcclCommunicators::Take(const Members& members, const NcclUniqueId* id) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(kept_, [&, ascending = Ascending(members)](const auto& communicator) {
        return communicator->members() == ascending &&
               (id == nullptr || std::memcmp(&communicator->id(), id, sizeof(*id)) == 0);
      });
  if (found == kept_.end()) return nullptr;
  std::unique_ptr<NcclCommunicator> taken = std::move(*found);
  kept_.erase(found);
  return taken;
}

void NcclCommunicators::Put(std::unique_ptr<NcclCommunicator> communicator) {
  Kept gone;  // ends without the lock
  const std::lock_guard lock(mutex_);
  const auto same =
      std::ranges::find(kept_, communicator->members(), [](const auto& kept) { return kept->members(); });
  if (same != kept_.end()) gone.splice(gone.end(), kept_, same);
  kept_.push_back(std::move(communicator));
  if (kept_.size() > kMost) gone.splice(gone.end(), kept_, kept_.begin());
}

std::string NcclCommunicators::IdFor(const Members& members) {
  std::unique_ptr<NcclCommunicator> found = Take(members, nullptr);
  if (found == nullptr || !found->sound()) return {};
  std::string id(found->id().internal, sizeof(found->id().internal));
  Put(std::move(found));
  return id;
}

}  // namespace troupe::gpu::cuda

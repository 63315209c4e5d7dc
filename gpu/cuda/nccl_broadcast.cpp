#include "gpu/cuda/nccl_broadcast.hpp"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu::cuda {
namespace {

// An identity says with its first byte whether the communicator is still to be made.
constexpr char kToBeMade = 'n';
constexpr char kAlreadyMade = 'k';
static_assert(1 + sizeof(NcclUniqueId) == transport::Broadcaster::kIdBytes);

class NcclEnd final : public transport::BroadcastEnd {
 public:
  // `meeting` is a byte on the GPU.
  NcclEnd(std::unique_ptr<NcclCommunicator> communicator, std::uint32_t sender, Duration patience,
          CUdeviceptr meeting, NcclCommunicators& kept)
      : communicator_(std::move(communicator)),
        sender_(sender),
        patience_(patience),
        meeting_(meeting),
        kept_(kept) {}

  // The communicator is kept between broadcasts only when all members have come to their end of this one.
  ~NcclEnd() override {
    if (finished_) kept_.Put(std::move(communicator_));
  }

  absl::Status Pass(std::span<std::byte> piece) override {
    return communicator_->Broadcast(sender_, piece, patience_);
  }
  absl::Status Finish() override {
    const absl::Status met = communicator_->Meet(meeting_, patience_);
    finished_ = met.ok();
    return met;
  }
  void Abort() override { communicator_->Abort(); }

 private:
  std::unique_ptr<NcclCommunicator> communicator_;
  const std::uint32_t sender_;
  const Duration patience_;
  const CUdeviceptr meeting_;
  NcclCommunicators& kept_;
  bool finished_ = false;
};

}  // namespace

NcclBroadcaster::~NcclBroadcaster() {
  if (meeting_ == 0) return;
  context_.Enter();
  (void)context_.driver().cuMemFree(meeting_);
}

absl::Status NcclBroadcaster::Ready() {
  const std::lock_guard lock(mutex_);
  if (absl::IsUnknown(loaded_)) loaded_ = Open();
  return loaded_;
}

absl::Status NcclBroadcaster::Open() {
  context_.Enter();
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<const Nccl> nccl, Nccl::Load(library_));
  TROUPE_RETURN_IF_ERROR(
      context_.Check(context_.driver().cuMemAlloc(&meeting_, 1), "allocating a byte for broadcasts"));
  nccl_ = std::move(nccl);
  return absl::OkStatus();
}

absl::StatusOr<std::string> NcclBroadcaster::NewId() {
  TROUPE_RETURN_IF_ERROR(Ready());
  context_.Enter();
  NcclUniqueId id{};
  const int made = nccl_->ncclGetUniqueId(&id);
  if (made != kNcclSuccess) {
    return absl::UnavailableError(
        absl::StrCat("beginning a broadcast: NCCL says ", nccl_->ncclGetErrorString(made)));
  }
  return kToBeMade + std::string(id.internal, sizeof(id.internal));
}

std::string NcclBroadcaster::Kept(const std::vector<std::uint32_t>& members) {
  const std::string id = kept_.IdFor(members);
  return id.empty() ? id : kAlreadyMade + id;
}

absl::StatusOr<std::unique_ptr<transport::BroadcastEnd>> NcclBroadcaster::Join(
    const transport::BroadcastSlot& slot, Duration patience) {
  TROUPE_RETURN_IF_ERROR(transport::CheckSlot(slot));
  TROUPE_RETURN_IF_ERROR(Ready());
  if (slot.id.size() != kIdBytes || (slot.id[0] != kToBeMade && slot.id[0] != kAlreadyMade))
    return absl::NotFoundError("there is no broadcast with this id: it was made by another library");
  NcclUniqueId id{};
  std::memcpy(id.internal, slot.id.data() + 1, sizeof(id.internal));
  std::unique_ptr<NcclCommunicator> communicator;
  if (slot.id[0] == kAlreadyMade) {
    communicator = kept_.Take(slot.members, &id);
    if (communicator == nullptr)
      return absl::NotFoundError("the communicator for this broadcast is not kept here any more");
  } else {
    (void)kept_.Take(slot.members, nullptr);  // its partners have let go of it
    communicator = std::make_unique<NcclCommunicator>(context_, *nccl_);
    TROUPE_RETURN_IF_ERROR(communicator->Join(id, slot, patience));
  }
  return std::make_unique<NcclEnd>(std::move(communicator), slot.members[0], patience, meeting_, kept_);
}

}  // namespace troupe::gpu::cuda

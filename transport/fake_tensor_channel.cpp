#include "transport/fake_tensor_channel.hpp"

#include <map>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::transport {
namespace {

constexpr char kHost[] = "fake";

struct FakeSlice {
  std::shared_ptr<std::vector<std::byte>> bytes;
  std::uint64_t owner = 0;
  std::uint64_t references = 1;
};

}  // namespace

struct FakeTensorChannel::World {
  std::mutex mutex;
  std::map<std::uint64_t, FakeSlice> slices;    // by identity; guarded by mutex
  std::map<std::uint64_t, std::uint64_t> used;  // bytes by owner; guarded by mutex
  std::uint64_t next = 1;                       // guarded by mutex

  absl::StatusOr<FakeSlice*> Find(const proto::ArenaRef& ref) {
    const auto found = slices.find(ref.slice());
    if (found == slices.end() || found->second.owner != ref.arena()) {
      return absl::NotFoundError(absl::StrCat("no slice ", ref.slice(), ": it was released before"));
    }
    return &found->second;
  }
  void Free(std::uint64_t slice) {
    used[slices.at(slice).owner] -= slices.at(slice).bytes->size();
    slices.erase(slice);
  }
};

std::shared_ptr<FakeTensorChannel::World> FakeTensorChannel::NewWorld() {
  return std::make_shared<World>();
}

FakeTensorChannel::FakeTensorChannel(std::shared_ptr<World> world, Bytes capacity)
    : world_(std::move(world)), capacity_(capacity), id_([this] {
        const std::lock_guard lock(world_->mutex);
        return world_->next++;
      }()) {}

absl::StatusOr<Reservation> FakeTensorChannel::Reserve(Bytes size) {
  if (size <= kInlineLimit) return InlineReservation(size);
  const std::lock_guard lock(world_->mutex);
  std::uint64_t& used = world_->used[id_];
  if (size > capacity_ || Bytes(used) > capacity_ - size) {
    return absl::ResourceExhaustedError(absl::StrCat("no room for ", FormatBytes(size), " in a channel of ",
                                                     FormatBytes(capacity_), ", ", FormatBytes(Bytes(used)),
                                                     " used"));
  }
  auto bytes = std::make_shared<std::vector<std::byte>>(size.count());
  used += size.count();
  const std::uint64_t slice = world_->next++;
  world_->slices.emplace(slice, FakeSlice{bytes, id_});
  proto::TensorRef ref;
  ref.mutable_arena()->set_host(kHost);
  ref.mutable_arena()->set_arena(id_);
  ref.mutable_arena()->set_length(size.count());
  ref.mutable_arena()->set_slice(slice);
  Reservation::Room room;
  room.bytes = *bytes;
  room.commit = [ref, bytes] { return ref; };
  room.cancel = [world = world_, slice] {
    const std::lock_guard cancel_lock(world->mutex);
    world->Free(slice);
  };
  return Reservation(std::move(room));
}

void FakeTensorChannel::FetchAsync(const proto::TensorRef& ref, Duration /*timeout*/, Done done) {
  if (!ref.has_arena()) return done(InlineData(ref));
  absl::StatusOr<TensorData> data = [&]() -> absl::StatusOr<TensorData> {
    const std::lock_guard lock(world_->mutex);
    TROUPE_ASSIGN_OR_RETURN(FakeSlice* const slice, world_->Find(ref.arena()));
    if (ref.arena().offset() != 0 || ref.arena().length() > slice->bytes->size()) {
      return absl::DataLossError(absl::StrCat("a reference claims ", ref.arena().length(),
                                              " bytes of a slice of ", slice->bytes->size()));
    }
    return TensorData(std::span<const std::byte>(slice->bytes->data(), ref.arena().length()), slice->bytes,
                      ref);
  }();
  done(std::move(data));
}

absl::Status FakeTensorChannel::Release(const proto::TensorRef& ref) {
  if (!ref.has_arena()) return absl::OkStatus();
  const std::lock_guard lock(world_->mutex);
  if (ref.arena().arena() != id_) return absl::FailedPreconditionError("another channel's slice to release");
  TROUPE_ASSIGN_OR_RETURN(FakeSlice* const slice, world_->Find(ref.arena()));
  if (--slice->references == 0) world_->Free(ref.arena().slice());
  return absl::OkStatus();
}

absl::Status FakeTensorChannel::Retain(const proto::TensorRef& ref) {
  if (!ref.has_arena()) return absl::OkStatus();
  const std::lock_guard lock(world_->mutex);
  if (ref.arena().arena() != id_) return absl::FailedPreconditionError("another channel's slice to retain");
  TROUPE_ASSIGN_OR_RETURN(FakeSlice* const slice, world_->Find(ref.arena()));
  ++slice->references;
  return absl::OkStatus();
}

Bytes FakeTensorChannel::used() const {
  const std::lock_guard lock(world_->mutex);
  const auto found = world_->used.find(id_);
  return Bytes(found == world_->used.end() ? 0 : found->second);
}

}  // namespace troupe::transport

#include "transport/fake_tensor_channel.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::transport {
namespace {

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

FakeTensorChannel::FakeTensorChannel(std::shared_ptr<World> world, Bytes capacity, std::string host)
    : world_(std::move(world)), capacity_(capacity), host_(std::move(host)), id_([this] {
        const std::lock_guard lock(world_->mutex);
        return world_->next++;
      }()) {}

bool FakeTensorChannel::Near(const proto::TensorRef& ref) const {
  return !ref.has_arena() || ref.arena().host() == host_;
}

absl::StatusOr<Reservation> FakeTensorChannel::Reserve(Bytes size) {
  if (size <= kInlineLimit) return InlineReservation(size);
  return ReserveSlice(size);
}

absl::StatusOr<Reservation> FakeTensorChannel::ReserveSlice(Bytes size) {
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
  ref.mutable_arena()->set_host(host_);
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

absl::StatusOr<proto::TensorRef> FakeTensorChannel::PutSlice(std::span<const std::byte> bytes) {
  TROUPE_ASSIGN_OR_RETURN(Reservation room, ReserveSlice(Bytes(bytes.size())));
  std::copy(bytes.begin(), bytes.end(), room.bytes().begin());
  return room.Commit();
}

absl::StatusOr<TensorData> FakeTensorChannel::FetchHere(const proto::TensorRef& ref) {
  const std::lock_guard lock(world_->mutex);
  TROUPE_ASSIGN_OR_RETURN(FakeSlice* const slice, world_->Find(ref.arena()));
  if (ref.arena().offset() != 0 || ref.arena().length() > slice->bytes->size()) {
    return absl::DataLossError(absl::StrCat("a reference claims ", ref.arena().length(),
                                            " bytes of a slice of ", slice->bytes->size()));
  }
  return TensorData(std::span<const std::byte>(slice->bytes->data(), ref.arena().length()), slice->bytes,
                    ref);
}

void FakeTensorChannel::FetchAsync(const proto::TensorRef& ref, Duration /*timeout*/, Done done) {
  if (!ref.has_arena()) return done(InlineData(ref));
  if (Near(ref)) return done(FetchHere(ref));
  absl::StatusOr<Reservation> room = ReserveSlice(SizeOf(ref));
  if (!room.ok()) return done(room.status());
  HeldFetch fetch{ref, std::make_shared<Reservation>(*std::move(room)), std::move(done)};
  {
    const std::lock_guard lock(mutex_);
    if (hold_) {
      held_.push_back(std::move(fetch));
      return;
    }
  }
  Complete(fetch, absl::OkStatus());
}

absl::StatusOr<TensorData> FakeTensorChannel::Copy(const proto::TensorRef& ref, Reservation& room) {
  TROUPE_ASSIGN_OR_RETURN(const TensorData there, FetchHere(ref));
  std::copy(there.bytes().begin(), there.bytes().end(), room.bytes().begin());
  const auto bytes = room.bytes();
  const proto::TensorRef here = room.Commit();
  std::shared_ptr<const void> keeper(bytes.data(),
                                     [world = world_, slice = here.arena().slice()](const void*) {
                                       const std::lock_guard lock(world->mutex);
                                       world->Free(slice);
                                     });
  return TensorData(bytes, std::move(keeper), here);
}

void FakeTensorChannel::Complete(const HeldFetch& fetch, const absl::Status& failure) {
  if (!failure.ok()) return fetch.done(failure);
  fetch.done(Copy(fetch.ref, *fetch.room));
}

void FakeTensorChannel::Hold() {
  const std::lock_guard lock(mutex_);
  hold_ = true;
}

bool FakeTensorChannel::CompleteNext(const absl::Status& failure) {
  HeldFetch next;
  {
    const std::lock_guard lock(mutex_);
    if (held_.empty()) return false;
    next = std::move(held_.front());
    held_.pop_front();
  }
  Complete(next, failure);
  return true;
}

void FakeTensorChannel::Resume() {
  {
    const std::lock_guard lock(mutex_);
    hold_ = false;
  }
  while (CompleteNext()) {
  }
}

std::size_t FakeTensorChannel::held() const {
  const std::lock_guard lock(mutex_);
  return held_.size();
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

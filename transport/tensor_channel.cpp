#include "transport/tensor_channel.hpp"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"

namespace troupe::transport {

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    Cancel();
    room_ = std::exchange(other.room_, Room());
  }
  return *this;
}

proto::TensorRef Reservation::Commit() {
  TROUPE_CHECK(room_.commit != nullptr, "a reservation is committed once");
  const Room room = std::exchange(room_, Room());
  return room.commit();
}

void Reservation::Cancel() {
  const Room room = std::exchange(room_, Room());
  if (room.cancel) room.cancel();
}

Reservation InlineReservation(Bytes size) {
  auto ref = std::make_shared<proto::TensorRef>();
  std::string& bytes = *ref->mutable_inlined();
  bytes.resize(size.count());
  Reservation::Room room;
  room.bytes = std::as_writable_bytes(std::span(bytes));
  room.commit = [ref] { return std::move(*ref); };
  return Reservation(std::move(room));
}

absl::StatusOr<TensorData> InlineData(const proto::TensorRef& ref) {
  if (ref.has_kept()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of ", ref.kept().length(), " bytes is kept by a worker of node '",
                     ref.kept().node(), "': it has to be exported before other processes can read it"));
  }
  if (Bytes(ref.inlined().size()) > kInlineLimit) {
    return absl::InvalidArgumentError(absl::StrCat("an inline tensor of ", ref.inlined().size(),
                                                   " bytes: at most ", kInlineLimit.count(),
                                                   " travel in a message"));
  }
  auto copy = std::make_shared<const proto::TensorRef>(ref);
  return TensorData(std::as_bytes(std::span(copy->inlined())), copy, *copy);
}

absl::StatusOr<proto::TensorRef> TensorChannel::Put(std::span<const std::byte> bytes, std::string_view name) {
  absl::StatusOr<Reservation> room = Reserve(Bytes(bytes.size()));
  if (!room.ok()) {
    return absl::Status(room.status().code(),
                        absl::StrCat("tensor '", std::string(name), "': ", room.status().message()));
  }
  if (!bytes.empty()) std::memcpy(room->bytes().data(), bytes.data(), bytes.size());
  return room->Commit();
}

absl::StatusOr<TensorData> TensorChannel::Fetch(const proto::TensorRef& ref, Duration timeout) {
  struct Waiting {
    std::mutex mutex;
    std::condition_variable arrived;
    std::optional<absl::StatusOr<TensorData>> result;
  };
  auto waiting = std::make_shared<Waiting>();
  FetchAsync(ref, timeout, [waiting](absl::StatusOr<TensorData> result) {
    const std::lock_guard lock(waiting->mutex);
    waiting->result = std::move(result);
    waiting->arrived.notify_one();
  });
  std::unique_lock lock(waiting->mutex);
  waiting->arrived.wait(lock, [&] { return waiting->result.has_value(); });
  return *std::move(waiting->result);
}

Bytes SizeOf(const proto::TensorRef& ref) {
  if (ref.has_arena()) return Bytes(ref.arena().length());
  if (ref.has_kept()) return Bytes(ref.kept().length());
  return Bytes(ref.inlined().size());
}

}  // namespace troupe::transport

// Tensors between processes and hosts: messages carry references, this carries the bytes.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/tensor.pb.h"

namespace troupe::transport {

// Up to this many bytes travel inside the message.
inline constexpr Bytes kInlineLimit = KiB(64);

// Bytes to be read, and whatever keeps them where they are (a copy, a mapping, a pinned slice). Cheap to move
// and to copy. Bytes in another process's arena stay valid only while their owner has not released the slice;
// the owner releases it after the reader said that it is done.
class TensorData {
 public:
  TensorData() = default;
  TensorData(std::span<const std::byte> bytes, std::shared_ptr<const void> keeper, proto::TensorRef ref)
      : bytes_(bytes), keeper_(std::move(keeper)), ref_(std::move(ref)) {}
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  // A reference to these bytes that processes of this host can map: after a fetch from another host it names
  // the local copy. Valid as long as this object (or a copy of it) lives.
  [[nodiscard]] const proto::TensorRef& ref() const { return ref_; }

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> keeper_;
  proto::TensorRef ref_;
};

// Room for one tensor, to be written in place. Commit turns it into a reference; dropped without Commit, the
// room is free again. One thread at a time.
class Reservation {
 public:
  // What a channel does with the room at the end: `commit` makes the reference, `cancel` frees the room.
  struct Room {
    std::span<std::byte> bytes;
    std::function<proto::TensorRef()> commit;
    std::function<void()> cancel;
  };
  Reservation() = default;
  explicit Reservation(Room room) : room_(std::move(room)) {}
  Reservation(Reservation&& other) noexcept : room_(std::exchange(other.room_, Room())) {}
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { Cancel(); }

  [[nodiscard]] std::span<std::byte> bytes() const { return room_.bytes; }
  // Once. From here on the bytes belong to the reference: free them with TensorChannel::Release.
  [[nodiscard]] proto::TensorRef Commit();

 private:
  void Cancel();
  Room room_;
};

// The edge to tensor bytes. Owner: one per process (daemon, worker); thread-safe. Bounded in bytes:
// ResourceExhausted when full. Forms: local_channel (inline and arenas of this host), remote_channel (adds
// other hosts over UCX), fake_tensor_channel.
class TensorChannel {
 public:
  using Done = std::function<void(absl::StatusOr<TensorData>)>;
  virtual ~TensorChannel() = default;

  // True when the bytes are inline or can be mapped by the processes of this host; false: a fetch goes over
  // the network, or fails.
  [[nodiscard]] virtual bool Near(const proto::TensorRef& ref) const = 0;
  // Room for `size` bytes, writable in place; inline when small.
  virtual absl::StatusOr<Reservation> Reserve(Bytes size) = 0;
  // Copies `bytes` into a new place. `name` is for error messages.
  absl::StatusOr<proto::TensorRef> Put(std::span<const std::byte> bytes, std::string_view name);
  // Bytes to read. May block: for one round trip when an arena is seen for the first time, for the transfer
  // when the bytes lie on another host. At most `timeout`.
  absl::StatusOr<TensorData> Fetch(const proto::TensorRef& ref, Duration timeout = std::chrono::seconds(10));
  // The same, without blocking for a transfer: `done` is called once, here or on the channel's thread, and
  // must not block.
  virtual void FetchAsync(const proto::TensorRef& ref, Duration timeout, Done done) = 0;
  // By the owner (the channel that committed the reference), once. Inline references need none and are
  // accepted.
  virtual absl::Status Release(const proto::TensorRef& ref) = 0;
  // One more Release is due: for bytes that several readers use.
  virtual absl::Status Retain(const proto::TensorRef& ref) = 0;

  [[nodiscard]] virtual Bytes used() const = 0;
  [[nodiscard]] virtual Bytes capacity() const = 0;
};

// For the forms of a channel: room inside the message, and the bytes of an inline reference (copied;
// InvalidArgument beyond kInlineLimit).
[[nodiscard]] Reservation InlineReservation(Bytes size);
absl::StatusOr<TensorData> InlineData(const proto::TensorRef& ref);

// The number of bytes that a reference stands for.
[[nodiscard]] Bytes SizeOf(const proto::TensorRef& ref);

}  // namespace troupe::transport

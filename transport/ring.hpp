// The ring: records from one process to another in shared memory, one producer and one consumer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "transport/memory_file.hpp"

namespace troupe::transport {

struct RingControl;

// The memory of one ring and its doorbell (an eventfd). Either side may make it; the other opens the two
// descriptors.
//   made or opened -> attached by one writer or one reader per process -> unmapped with the last of them.
class RingMemory {
 public:
  // Capacity: a power of two, 4 KiB to 64 MiB, of records and their 16-byte headers.
  static absl::StatusOr<std::shared_ptr<RingMemory>> Create(const std::string& name, Bytes capacity);
  // Validates everything that the other process wrote into the control block.
  static absl::StatusOr<std::shared_ptr<RingMemory>> Open(UniqueFd memory, UniqueFd doorbell);

  [[nodiscard]] int memory_fd() const { return memory_.fd(); }
  [[nodiscard]] int doorbell_fd() const { return doorbell_.get(); }
  [[nodiscard]] Bytes capacity() const { return capacity_; }
  // The largest payload that one record may carry: half of the ring, so that a large record cannot block it
  // for long.
  [[nodiscard]] Bytes largest_payload() const { return Bytes(capacity_.count() / 2); }
  [[nodiscard]] RingControl& control() const;
  [[nodiscard]] std::byte* data() const;

 private:
  MemoryFile memory_;
  UniqueFd doorbell_;
  Bytes capacity_;
};

// What was read: a copy, so that the producer cannot change it under the reader's hands.
struct RingRecord {
  std::uint16_t op = 0;
  std::uint16_t flags = 0;
  std::uint64_t sequence = 0;
  std::string payload;
};

// The producer's end. One thread at a time. A writer that dies in mid-record leaves the ring as it was before
// it.
class RingWriter {
 public:
  // Goes on where the last writer of this ring stopped. DataLoss when the control block makes no sense.
  static absl::StatusOr<RingWriter> Attach(std::shared_ptr<RingMemory> memory);
  // False when the ring is full. InvalidArgument for more than largest_payload(), DataLoss for a corrupt
  // peer.
  absl::StatusOr<bool> TryWrite(std::uint16_t op, std::uint16_t flags, std::uint64_t sequence,
                                std::span<const std::byte> payload);
  // Waits for space in growing steps (a full ring is rare: callers bound what is in flight).
  // DeadlineExceeded.
  absl::Status Write(std::uint16_t op, std::uint16_t flags, std::uint64_t sequence,
                     std::span<const std::byte> payload, Duration timeout);
  [[nodiscard]] const RingMemory& memory() const { return *memory_; }

 private:
  RingWriter(std::shared_ptr<RingMemory> memory, std::uint64_t head, std::uint64_t tail)
      : memory_(std::move(memory)), head_(head), tail_(tail) {}
  void CopyIn(std::uint64_t position, std::span<const std::byte> bytes);
  void RingDoorbell();

  std::shared_ptr<RingMemory> memory_;
  std::uint64_t head_;  // our truth; the shared copy is for the reader only
  std::uint64_t tail_;  // the last one seen: space is looked up only when it seems to be short
};

// The consumer's end. One thread at a time.
// In an event loop: read until TryRead says false, then Arm(); when it says true, wait for doorbell_fd() to
// become readable, then Disarm() and read again. When Arm() says false a record came in between: read again.
class RingReader {
 public:
  static absl::StatusOr<RingReader> Attach(std::shared_ptr<RingMemory> memory);
  // False when the ring is empty. DataLoss, from then on always, when the producer wrote what cannot be.
  absl::StatusOr<bool> TryRead(RingRecord& record);
  [[nodiscard]] int doorbell() const { return memory_->doorbell_fd(); }
  bool Arm();
  void Disarm();
  // Spins for a moment, then sleeps on the doorbell. True when there is something to read (or an error to
  // find).
  bool Wait(Duration timeout);
  [[nodiscard]] const RingMemory& memory() const { return *memory_; }

 private:
  RingReader(std::shared_ptr<RingMemory> memory, std::uint64_t tail)
      : memory_(std::move(memory)), tail_(tail) {}
  [[nodiscard]] bool Empty() const;
  void CopyOut(std::uint64_t position, std::span<std::byte> bytes) const;
  absl::Status Corrupt(const std::string& what);

  std::shared_ptr<RingMemory> memory_;
  std::uint64_t tail_;  // our truth; the shared copy is for the writer only
  bool corrupt_ = false;
};

}  // namespace troupe::transport

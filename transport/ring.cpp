#include "transport/ring.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "proto/formats.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::transport {

// First page of a ring's memory. Positions count bytes ever written and read; they never wrap (2^64 bytes
// take centuries).
struct RingControl {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t capacity;
  alignas(64) std::atomic<std::uint64_t> head;      // stored by the writer
  alignas(64) std::atomic<std::uint64_t> tail;      // stored by the reader
  alignas(64) std::atomic<std::uint32_t> sleeping;  // set by the reader, taken by the writer
};

namespace {

constexpr std::uint64_t kRingMagic = 0x7472'7570'7269'6e67;  // "trupring"
constexpr std::uint32_t kRingVersion = proto::kRingFormat;
constexpr std::uint64_t kControlSize = 4096;
constexpr Bytes kSmallest = KiB(4);
constexpr Bytes kLargest = MiB(64);
// Records start at multiples of the header's size, so that a header never wraps round the end.
constexpr std::uint64_t kRecordAlignment = 16;
// Rather shorter than a futex wake-up costs; on a busy machine spinning takes the core from the producer.
constexpr int kSpins = 64;

struct RecordHeader {
  std::uint16_t op;
  std::uint16_t flags;
  std::uint32_t length;
  std::uint64_t sequence;
};
static_assert(sizeof(RecordHeader) == kRecordAlignment);
static_assert(sizeof(RingControl) <= kControlSize);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

std::uint64_t RecordSize(std::uint64_t payload) {
  return sizeof(RecordHeader) + ((payload + kRecordAlignment - 1) & ~(kRecordAlignment - 1));
}

bool ValidCapacity(std::uint64_t capacity) {
  return std::has_single_bit(capacity) && capacity >= kSmallest.count() && capacity <= kLargest.count();
}

// The positions of a ring as found in shared memory make sense together.
bool ValidPositions(std::uint64_t head, std::uint64_t tail, std::uint64_t capacity) {
  return head >= tail && head - tail <= capacity && head % kRecordAlignment == 0 &&
         tail % kRecordAlignment == 0;
}

absl::Status CorruptPositions(std::uint64_t head, std::uint64_t tail) {
  return absl::DataLossError(absl::StrCat("ring positions make no sense (head ", head, ", tail ", tail,
                                          "): the process at the other end is broken"));
}

// A descriptor of another kind would make a doorbell that blocks or never rings.
absl::Status CheckEventFd(int fd) {
  std::array<char, 64> target{};
  const std::string link = absl::StrCat("/proc/self/fd/", fd);
  if (readlink(link.c_str(), target.data(), target.size() - 1) < 0 ||
      std::string_view(target.data()) != "anon_inode:[eventfd]") {
    return absl::InvalidArgumentError("the descriptor received as a ring's doorbell is not an eventfd");
  }
  if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "making a doorbell non-blocking");
  return absl::OkStatus();
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

RingControl& RingMemory::control() const {
  return *reinterpret_cast<RingControl*>(memory_.data());
}
std::byte* RingMemory::data() const {
  return memory_.data() + kControlSize;
}

absl::StatusOr<std::shared_ptr<RingMemory>> RingMemory::Create(const std::string& name, Bytes capacity) {
  if (!ValidCapacity(capacity.count())) {
    return absl::InvalidArgumentError(absl::StrCat("ring of ", FormatBytes(capacity),
                                                   ": must be a power of two from ", FormatBytes(kSmallest),
                                                   " to ", FormatBytes(kLargest)));
  }
  auto ring = std::make_shared<RingMemory>();
  TROUPE_ASSIGN_OR_RETURN(ring->memory_, MemoryFile::Create(name, capacity + Bytes(kControlSize)));
  ring->doorbell_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!ring->doorbell_.valid()) return ErrnoStatus(errno, "making a ring's doorbell");
  ring->capacity_ = capacity;
  auto* control = new (ring->memory_.data()) RingControl{};
  control->magic = kRingMagic;
  control->version = kRingVersion;
  control->capacity = capacity.count();
  return ring;
}

absl::StatusOr<std::shared_ptr<RingMemory>> RingMemory::Open(UniqueFd memory, UniqueFd doorbell) {
  TROUPE_RETURN_IF_ERROR(CheckEventFd(doorbell.get()));
  auto ring = std::make_shared<RingMemory>();
  TROUPE_ASSIGN_OR_RETURN(ring->memory_, MemoryFile::Open(std::move(memory), MemoryFile::Access::kReadWrite));
  if (ring->memory_.size().count() < kControlSize + kSmallest.count()) {
    return absl::InvalidArgumentError("received shared memory is too small for a ring");
  }
  const RingControl& control = ring->control();
  const std::uint64_t capacity = control.capacity;  // once: the other side could change it
  if (control.magic != kRingMagic || control.version != kRingVersion || !ValidCapacity(capacity) ||
      capacity > ring->memory_.size().count() - kControlSize) {
    return absl::InvalidArgumentError("received shared memory is not a ring of this version of Troupe");
  }
  ring->capacity_ = Bytes(capacity);
  ring->doorbell_ = std::move(doorbell);
  return ring;
}

absl::StatusOr<RingWriter> RingWriter::Attach(std::shared_ptr<RingMemory> memory) {
  const std::uint64_t head = memory->control().head.load(std::memory_order_acquire);
  const std::uint64_t tail = memory->control().tail.load(std::memory_order_acquire);
  if (!ValidPositions(head, tail, memory->capacity().count())) return CorruptPositions(head, tail);
  return RingWriter(std::move(memory), head, tail);
}

absl::StatusOr<bool> RingWriter::TryWrite(std::uint16_t op, std::uint16_t flags, std::uint64_t sequence,
                                          std::span<const std::byte> payload) {
  if (Bytes(payload.size()) > memory_->largest_payload()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a record of ", payload.size(), " bytes is too large for a ring of ",
                     FormatBytes(memory_->capacity()), " (at most half of it)"));
  }
  const std::uint64_t capacity = memory_->capacity().count();
  const std::uint64_t size = RecordSize(payload.size());
  if (capacity - (head_ - tail_) < size) {
    const std::uint64_t tail = memory_->control().tail.load(std::memory_order_acquire);
    if (tail < tail_ || !ValidPositions(head_, tail, capacity)) return CorruptPositions(head_, tail);
    tail_ = tail;
    if (capacity - (head_ - tail_) < size) return false;
  }
  const RecordHeader header{op, flags, static_cast<std::uint32_t>(payload.size()), sequence};
  CopyIn(head_, std::as_bytes(std::span(&header, 1)));
  CopyIn(head_ + sizeof(header), payload);
  head_ += size;
  RingDoorbell();
  return true;
}

// Publishes the record, then looks whether the reader sleeps. Both this pair and the reader's (set
// `sleeping`, then look at `head`) are sequentially consistent, so at least one side sees the other: no
// wake-up is lost.
void RingWriter::RingDoorbell() {
  RingControl& control = memory_->control();
  control.head.store(head_, std::memory_order_seq_cst);
  if (control.sleeping.load(std::memory_order_seq_cst) == 0) return;
  if (control.sleeping.exchange(0, std::memory_order_seq_cst) == 0) return;
  const std::uint64_t one = 1;
  // A full counter (EAGAIN) means that the bell rings already.
  [[maybe_unused]] const ssize_t written = write(memory_->doorbell_fd(), &one, sizeof(one));
}

absl::Status RingWriter::Write(std::uint16_t op, std::uint16_t flags, std::uint64_t sequence,
                               std::span<const std::byte> payload, Duration timeout) {
  const Time deadline = SteadyNow() + timeout;
  Duration pause = std::chrono::microseconds(20);
  for (;;) {
    TROUPE_ASSIGN_OR_RETURN(const bool written, TryWrite(op, flags, sequence, payload));
    if (written) return absl::OkStatus();
    if (SteadyNow() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("ring of ", FormatBytes(memory_->capacity()),
                                                      " stayed full for ", FormatDuration(timeout),
                                                      ": its reader hangs or is gone"));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<Duration>(pause * 2, std::chrono::milliseconds(2));
  }
}

void RingWriter::CopyIn(std::uint64_t position, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const std::uint64_t capacity = memory_->capacity().count();
  const std::uint64_t start = position & (capacity - 1);
  const std::size_t first = std::min<std::uint64_t>(bytes.size(), capacity - start);
  std::memcpy(memory_->data() + start, bytes.data(), first);
  std::memcpy(memory_->data(), bytes.data() + first, bytes.size() - first);
}

absl::StatusOr<RingReader> RingReader::Attach(std::shared_ptr<RingMemory> memory) {
  const std::uint64_t head = memory->control().head.load(std::memory_order_acquire);
  const std::uint64_t tail = memory->control().tail.load(std::memory_order_acquire);
  if (!ValidPositions(head, tail, memory->capacity().count())) return CorruptPositions(head, tail);
  return RingReader(std::move(memory), tail);
}

absl::StatusOr<bool> RingReader::TryRead(RingRecord& record) {
  if (corrupt_) return Corrupt("it was found to be broken before");
  const std::uint64_t head = memory_->control().head.load(std::memory_order_acquire);
  if (head == tail_) return false;
  if (!ValidPositions(head, tail_, memory_->capacity().count())) {
    return Corrupt(absl::StrCat("head ", head, " does not go with tail ", tail_));
  }
  const std::uint64_t available = head - tail_;
  RecordHeader header{};
  CopyOut(tail_, std::as_writable_bytes(std::span(&header, 1)));
  if (Bytes(header.length) > memory_->largest_payload() || RecordSize(header.length) > available) {
    return Corrupt(
        absl::StrCat("a record claims ", header.length, " bytes where ", available, " were written"));
  }
  record.op = header.op;
  record.flags = header.flags;
  record.sequence = header.sequence;
  record.payload.resize(header.length);
  CopyOut(tail_ + sizeof(header), std::as_writable_bytes(std::span(record.payload)));
  tail_ += RecordSize(header.length);
  memory_->control().tail.store(tail_, std::memory_order_release);
  return true;
}

absl::Status RingReader::Corrupt(const std::string& what) {
  corrupt_ = true;
  return absl::DataLossError(absl::StrCat("ring cannot be read: ", what, "; its writer is broken"));
}

void RingReader::CopyOut(std::uint64_t position, std::span<std::byte> bytes) const {
  if (bytes.empty()) return;
  const std::uint64_t capacity = memory_->capacity().count();
  const std::uint64_t start = position & (capacity - 1);
  const std::size_t first = std::min<std::uint64_t>(bytes.size(), capacity - start);
  std::memcpy(bytes.data(), memory_->data() + start, first);
  std::memcpy(bytes.data() + first, memory_->data(), bytes.size() - first);
}

bool RingReader::Empty() const {
  return !corrupt_ && memory_->control().head.load(std::memory_order_seq_cst) == tail_;
}

bool RingReader::Arm() {
  memory_->control().sleeping.store(1, std::memory_order_seq_cst);
  if (Empty()) return true;
  // A bell that rings all the same is cleared by the next Disarm: no system call on the busy path.
  memory_->control().sleeping.store(0, std::memory_order_seq_cst);
  return false;
}

void RingReader::Disarm() {
  memory_->control().sleeping.store(0, std::memory_order_seq_cst);
  std::uint64_t rings = 0;
  // The writer shares the doorbell and may have made it blocking; this read does not wait all the same.
  const iovec place{&rings, sizeof(rings)};
  [[maybe_unused]] const ssize_t got = preadv2(memory_->doorbell_fd(), &place, 1, -1, RWF_NOWAIT);
}

bool RingReader::Wait(Duration timeout) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (!Empty()) return true;
    Pause();
  }
  const Time deadline = SteadyNow() + timeout;
  while (Arm()) {
    pollfd bell{doorbell(), POLLIN, 0};
    const int ready = poll(&bell, 1, PollMillis(deadline));
    Disarm();
    if (!Empty()) return true;
    if (ready == 0 || (ready < 0 && errno != EINTR)) return false;
  }
  return true;
}

}  // namespace troupe::transport

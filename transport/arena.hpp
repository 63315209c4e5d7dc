// Arenas: memory files in which tensors lie, one slice each, for readers in other processes of the host.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/tensor.pb.h"
#include "transport/memory_file.hpp"
#include "transport/range_allocator.hpp"

namespace troupe::transport {

// Stands in front of every slice, in the shared memory, so that a reader in another process notices when a
// slice was freed and its place given to another.
struct alignas(64) SliceHeader {
  std::uint64_t magic;
  std::uint64_t arena;
  std::uint64_t slice;
  std::uint64_t length;
};
static_assert(sizeof(SliceHeader) == 64);

// A slice that its owner may write: valid until the last Release.
struct ArenaSlice {
  std::span<std::byte> bytes;
  std::uint64_t offset = 0;  // of the bytes, in the arena
  std::uint64_t slice = 0;   // identity, never used twice
};

// One bounded arena. Made by the process whose tensors lie in it (gateway, worker, daemon); its descriptor is
// handed out by an ArenaServer. Thread-safe. Each slice is born with one reference; Retain adds one, Release
// drops one, the last frees it. The holder of a reference may read; a reader in another process relies on its
// owner's reference.
class Arena {
 public:
  static absl::StatusOr<std::shared_ptr<Arena>> Create(const std::string& name, Bytes capacity);

  // 64-byte aligned. ResourceExhausted when no free range is long enough: says how much is free and the
  // largest range.
  absl::StatusOr<ArenaSlice> Allocate(Bytes size);
  // NotFound when the slice was released before: the caller counts wrongly, or is hostile.
  absl::Status Retain(std::uint64_t offset, std::uint64_t slice);
  absl::Status Release(std::uint64_t offset, std::uint64_t slice);
  // The bytes of a living slice with one more reference, which the caller releases.
  absl::StatusOr<std::span<const std::byte>> Pin(std::uint64_t offset, std::uint64_t slice,
                                                 std::uint64_t length);

  [[nodiscard]] std::uint64_t id() const { return id_; }
  [[nodiscard]] int fd() const { return memory_.fd(); }
  [[nodiscard]] Bytes capacity() const;
  [[nodiscard]] Bytes used() const;
  [[nodiscard]] std::size_t slices() const;

 private:
  struct Living {
    std::uint64_t slice;
    std::uint64_t length;
    std::uint64_t references;
  };
  Arena(MemoryFile memory, std::uint64_t id);
  absl::StatusOr<Living*> Find(std::uint64_t offset, std::uint64_t slice);

  MemoryFile memory_;
  const std::uint64_t id_;
  mutable std::mutex mutex_;
  RangeAllocator ranges_;                   // guarded by mutex_
  std::map<std::uint64_t, Living> living_;  // by offset of the bytes; guarded by mutex_
  std::uint64_t next_slice_ = 1;            // guarded by mutex_
};

// Checks `ref` against the slice header in mapped memory and gives the bytes. Nothing in `ref` or the memory
// is trusted: DataLoss for a range outside the mapping, NotFound for a slice that is not there any more.
absl::StatusOr<std::span<const std::byte>> ResolveSlice(const MemoryFile& memory, const proto::ArenaRef& ref);

}  // namespace troupe::transport

// Free and used ranges of one address space: the arithmetic behind arenas and the host region.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/units.hpp"

namespace troupe::transport {

// Best fit, lowest offset among equals (recently used pages are warm), coalescing with both neighbours on
// Free. Does not touch the memory itself. Not thread-safe: its owner locks. All sizes are rounded up to the
// alignment.
class RangeAllocator {
 public:
  // Manages [begin, begin + size). The alignment is a power of two; `begin` is a multiple of it.
  RangeAllocator(std::uint64_t begin, Bytes size, Bytes alignment);

  // The offset of `size` bytes; nothing when no free range is long enough. Zero bytes take one alignment
  // unit.
  [[nodiscard]] std::optional<std::uint64_t> Allocate(Bytes size);
  // False when no allocated range begins at `offset`: freed before, or never given out.
  [[nodiscard]] bool Free(std::uint64_t offset);
  // The (rounded) length of the allocated range that begins at `offset`.
  [[nodiscard]] std::optional<Bytes> LengthAt(std::uint64_t offset) const;

  [[nodiscard]] Bytes capacity() const { return capacity_; }
  [[nodiscard]] Bytes used() const { return used_; }
  [[nodiscard]] Bytes free() const { return capacity_ - used_; }
  [[nodiscard]] Bytes largest_free() const;
  [[nodiscard]] std::size_t allocations() const { return allocated_.size(); }

 private:
  void InsertFree(std::uint64_t offset, std::uint64_t length);
  void EraseFree(std::map<std::uint64_t, std::uint64_t>::iterator range);

  Bytes capacity_;
  Bytes alignment_;
  Bytes used_;
  std::map<std::uint64_t, std::uint64_t> free_by_offset_;             // offset -> length
  std::set<std::pair<std::uint64_t, std::uint64_t>> free_by_length_;  // (length, offset)
  std::map<std::uint64_t, std::uint64_t> allocated_;                  // offset -> length
};

}  // namespace troupe::transport

#include "transport/range_allocator.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/check.hpp"

namespace troupe::transport {

RangeAllocator::RangeAllocator(std::uint64_t begin, Bytes size, Bytes alignment)
    : capacity_(size.count() & ~(alignment.count() - 1)), alignment_(alignment) {
  TROUPE_CHECK(std::has_single_bit(alignment.count()), "the alignment of ranges is a power of two");
  TROUPE_CHECK(begin % alignment.count() == 0, "ranges begin at a multiple of their alignment");
  if (capacity_ > Bytes(0)) InsertFree(begin, capacity_.count());
}

std::optional<std::uint64_t> RangeAllocator::Allocate(Bytes size) {
  if (size > capacity_) return std::nullopt;  // also keeps AlignUp from overflowing
  const std::uint64_t length = std::max(AlignUp(size, alignment_), alignment_).count();
  const auto fit = free_by_length_.lower_bound({length, 0});
  if (fit == free_by_length_.end()) return std::nullopt;
  const auto [found, offset] = *fit;
  EraseFree(free_by_offset_.find(offset));
  if (found > length) InsertFree(offset + length, found - length);
  allocated_.emplace(offset, length);
  used_ += Bytes(length);
  return offset;
}

bool RangeAllocator::Free(std::uint64_t offset) {
  const auto range = allocated_.find(offset);
  if (range == allocated_.end()) return false;
  std::uint64_t begin = offset;
  std::uint64_t length = range->second;
  used_ -= Bytes(length);
  allocated_.erase(range);
  const auto next = free_by_offset_.lower_bound(offset);
  if (next != free_by_offset_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      begin = previous->first;
      length += previous->second;
      EraseFree(previous);
    }
  }
  if (next != free_by_offset_.end() && begin + length == next->first) {
    length += next->second;
    EraseFree(next);
  }
  InsertFree(begin, length);
  return true;
}

std::optional<Bytes> RangeAllocator::LengthAt(std::uint64_t offset) const {
  const auto range = allocated_.find(offset);
  if (range == allocated_.end()) return std::nullopt;
  return Bytes(range->second);
}

Bytes RangeAllocator::largest_free() const {
  return free_by_length_.empty() ? Bytes(0) : Bytes(free_by_length_.rbegin()->first);
}

void RangeAllocator::InsertFree(std::uint64_t offset, std::uint64_t length) {
  free_by_offset_.emplace(offset, length);
  free_by_length_.emplace(length, offset);
}

void RangeAllocator::EraseFree(std::map<std::uint64_t, std::uint64_t>::iterator range) {
  free_by_length_.erase({range->second, range->first});
  free_by_offset_.erase(range);
}

}  // namespace troupe::transport

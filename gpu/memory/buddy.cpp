#include "gpu/memory/buddy.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"

namespace troupe::gpu {

Buddy::Buddy(std::uint32_t units) : units_(units) {
  TROUPE_CHECK(units < (1u << kOrders), "a partition is too large for its unit");
  PutRange(0, units);
}

std::uint32_t Buddy::largest() const {
  return orders_ == 0 ? 0 : std::bit_floor(orders_);
}

std::optional<std::uint32_t> Buddy::Allocate(std::uint32_t units) {
  if (units == 0 || units > largest()) return std::nullopt;
  const auto wanted = static_cast<std::uint32_t>(std::bit_width(units - 1));
  const auto order = wanted + static_cast<std::uint32_t>(std::countr_zero(orders_ >> wanted));
  const std::uint32_t offset = *chunks_[order].begin();
  chunks_[order].erase(chunks_[order].begin());
  if (chunks_[order].empty()) orders_ &= ~(1u << order);
  free_ -= 1u << order;
  if (const std::uint32_t rest = (1u << order) - units; rest > 0) PutRange(offset + units, rest);
  return offset;
}

std::optional<std::pair<std::uint32_t, std::uint32_t>> Buddy::FreeChunkOf(std::uint32_t unit) const {
  for (std::uint32_t order = 0; order < kOrders; ++order) {
    const std::uint32_t begin = unit >> order << order;
    if (chunks_[order].contains(begin)) return std::pair(begin, order);
  }
  return std::nullopt;
}

bool Buddy::AllocateAt(std::uint32_t offset, std::uint32_t units) {
  if (units == 0 || units > units_ || offset > units_ - units) return false;
  const std::uint32_t end = offset + units;
  for (std::uint32_t at = offset; at < end;) {
    const auto chunk = FreeChunkOf(at);
    if (!chunk) return false;
    at = chunk->first + (1u << chunk->second);
  }
  for (std::uint32_t at = offset; at < end;) {
    const auto [begin, order] = *FreeChunkOf(at);
    const std::uint32_t behind = begin + (1u << order);
    chunks_[order].erase(begin);
    if (chunks_[order].empty()) orders_ &= ~(1u << order);
    free_ -= 1u << order;
    if (begin < offset) PutRange(begin, offset - begin);
    if (behind > end) PutRange(end, behind - end);
    at = behind;
  }
  return true;
}

void Buddy::Free(std::uint32_t offset, std::uint32_t units) {
  TROUPE_CHECK(units <= units_ && offset <= units_ - units, "a chunk outside of its partition was freed");
  PutRange(offset, units);
}

// In the largest aligned chunks.
void Buddy::PutRange(std::uint32_t offset, std::uint32_t units) {
  free_ += units;
  while (units > 0) {
    const std::uint32_t aligned = offset == 0 ? (1u << (kOrders - 1)) : (offset & (~offset + 1));
    const std::uint32_t length = std::min(aligned, std::bit_floor(units));
    Put(offset, static_cast<std::uint32_t>(std::countr_zero(length)));
    offset += length;
    units -= length;
  }
}

void Buddy::Put(std::uint32_t offset, std::uint32_t order) {
  for (; order + 1 < kOrders; ++order) {
    if (chunks_[order].erase(offset ^ (1u << order)) == 0) break;
    if (chunks_[order].empty()) orders_ &= ~(1u << order);
    offset &= ~(1u << order);
  }
  chunks_[order].insert(offset);
  orders_ |= 1u << order;
}

}  // namespace troupe::gpu

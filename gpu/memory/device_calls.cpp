#include "gpu/memory/device_calls.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace troupe::gpu {

DeviceCalls::DeviceCalls(Bytes capacity, PayForCall pay)
    : ranges_(0, capacity, kUnit), pay_(std::move(pay)) {}

std::optional<std::uint64_t> DeviceCalls::Allocate(const MemoryUser&, Bytes size) {
  if (pay_) pay_();
  return ranges_.Allocate(size);
}

bool DeviceCalls::Free(std::uint64_t offset) {
  if (pay_) pay_();
  return ranges_.Free(offset);
}

std::optional<Bytes> DeviceCalls::Occupied(std::uint64_t offset) const {
  return ranges_.LengthAt(offset);
}

MemoryUse DeviceCalls::use() const {
  return {ranges_.capacity(), ranges_.free(), ranges_.largest_free()};
}

BlockCache::BlockCache(Bytes capacity, PayForCall pay) : ranges_(0, capacity, kUnit), pay_(std::move(pay)) {}

std::optional<std::uint64_t> BlockCache::Allocate(const MemoryUser&, Bytes size) {
  if (const auto fit = by_length_.lower_bound(size); fit != by_length_.end()) {
    const Kept block = *fit->second;
    kept_.erase(fit->second);
    by_length_.erase(fit);
    handed_out_.emplace(block.offset, block.length);
    used_ += block.length;
    return block.offset;
  }
  if (size > ranges_.capacity()) return std::nullopt;
  for (;;) {
    if (pay_) pay_();
    if (const std::optional<std::uint64_t> offset = ranges_.Allocate(size)) {
      const Bytes length = *ranges_.LengthAt(*offset);
      handed_out_.emplace(*offset, length);
      used_ += length;
      return offset;
    }
    if (kept_.empty()) return std::nullopt;
    do {
      GiveBack(kept_.begin());
    } while (!kept_.empty() && ranges_.largest_free() < size);
  }
}

void BlockCache::GiveBack(std::list<Kept>::iterator block) {
  if (pay_) pay_();
  auto [same, end] = by_length_.equal_range(block->length);
  by_length_.erase(std::find_if(same, end, [block](const auto& entry) { return entry.second == block; }));
  TROUPE_CHECK(ranges_.Free(block->offset), "a kept block was freed before");
  kept_.erase(block);
}

bool BlockCache::Free(std::uint64_t offset) {
  const auto found = handed_out_.find(offset);
  if (found == handed_out_.end()) return false;
  used_ -= found->second;
  const auto block = kept_.insert(kept_.end(), {offset, found->second});
  by_length_.emplace(found->second, block);
  handed_out_.erase(found);
  return true;
}

std::optional<Bytes> BlockCache::Occupied(std::uint64_t offset) const {
  const auto found = handed_out_.find(offset);
  if (found == handed_out_.end()) return std::nullopt;
  return found->second;
}

MemoryUse BlockCache::use() const {
  transport::RangeAllocator without = ranges_;
  for (const Kept& block : kept_) TROUPE_CHECK(without.Free(block.offset), "a kept block was freed before");
  return {ranges_.capacity(), ranges_.capacity() - used_, without.largest_free()};
}

}  // namespace troupe::gpu

#include "gpu/device/device_ranges.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::gpu {
namespace {
constexpr Bytes kAlignment = Bytes(256);  // what CUDA's own allocations have
}

DeviceRanges::DeviceRanges(std::string device, const DeviceRange& memory)
    : device_(std::move(device)),
      begin_(memory.address),
      ranges_(0, Bytes(memory.size.count() / kAlignment.count() * kAlignment.count()), kAlignment) {}

absl::StatusOr<DeviceRange> DeviceRanges::Allocate(Bytes size) {
  const std::lock_guard lock(mutex_);
  const std::optional<std::uint64_t> offset = ranges_.Allocate(size);
  if (!offset) {
    return absl::ResourceExhaustedError(
        absl::StrCat(FormatBytes(size), " do not fit ", device_, ": ", FormatBytes(ranges_.free()),
                     " are free, the largest range has ", FormatBytes(ranges_.largest_free())));
  }
  return DeviceRange{begin_ + *offset, size};
}

void DeviceRanges::Free(const DeviceRange& range) {
  const std::lock_guard lock(mutex_);
  TROUPE_CHECK(ranges_.Free(static_cast<std::uint64_t>(range.address - begin_)),
               "a range was freed that is not allocated");
}

MemoryUse DeviceRanges::use() const {
  const std::lock_guard lock(mutex_);
  return {ranges_.capacity(), ranges_.free(), ranges_.largest_free()};
}

}  // namespace troupe::gpu

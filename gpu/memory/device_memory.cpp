#include "gpu/memory/device_memory.hpp"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::gpu {
namespace {

constexpr Bytes kAlignment(256);

DeviceRange TakeQuota(Device& device, Bytes quota) {
  const Bytes there = device.memory().largest;
  const absl::StatusOr<DeviceRange> range =
      device.Allocate(quota == Bytes(0) ? there : std::min(quota, there));
  TROUPE_CHECK(range.ok(), "a device gives the largest range that it has");
  return *range;
}

}  // namespace

DeviceMemory::DeviceMemory(Device& device, const MemoryOptions& options)
    : device_(device), quota_(TakeQuota(device, options.quota)), ranges_(0, quota_.size, kAlignment) {}

DeviceMemory::~DeviceMemory() {
  device_.Free(quota_);
}

absl::StatusOr<DeviceRange> DeviceMemory::Allocate(const MemoryUser&, Bytes size) {
  const std::optional<std::uint64_t> offset = ranges_.Allocate(size);
  if (!offset) {
    return absl::ResourceExhaustedError(absl::StrCat(
        FormatBytes(size), " do not fit ", device_.info().name, ": ", FormatBytes(ranges_.free()),
        " are free, the largest range has ", FormatBytes(ranges_.largest_free())));
  }
  return DeviceRange{quota_.address + *offset, size};
}

void DeviceMemory::Free(const DeviceRange& range) {
  TROUPE_CHECK(ranges_.Free(static_cast<std::uint64_t>(range.address - quota_.address)),
               "a range was freed that is not allocated");
}

MemoryUse DeviceMemory::memory() const {
  return {ranges_.capacity(), ranges_.free(), ranges_.largest_free()};
}

}  // namespace troupe::gpu

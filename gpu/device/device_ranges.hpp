// DEVICE RANGES: which parts of a device's memory are taken. Any thread.
#pragma once

#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "gpu/device/device.hpp"
#include "transport/range_allocator.hpp"

namespace troupe::gpu {

class DeviceRanges {
 public:
  // `device` is for messages; what does not fill an alignment at the end of `memory` is not handed out.
  DeviceRanges(std::string device, const DeviceRange& memory);

  // ResourceExhausted, with what is free.
  [[nodiscard]] absl::StatusOr<DeviceRange> Allocate(Bytes size);
  // A range that Allocate gave and that is not free yet; anything else is a bug.
  void Free(const DeviceRange& range);
  [[nodiscard]] MemoryUse use() const;

 private:
  const std::string device_;
  std::byte* const begin_;
  mutable std::mutex mutex_;
  transport::RangeAllocator ranges_;  // guarded by mutex_
};

}  // namespace troupe::gpu

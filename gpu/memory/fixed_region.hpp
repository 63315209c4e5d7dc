// A region of device memory that is set aside once, and given out in pieces.
#pragma once

#include <optional>

#include "gpu/device/device.hpp"
#include "gpu/memory/buddy.hpp"

namespace troupe::gpu {

// Pieces are aligned to 4 KiB, or more where the region is so large that its units are. The owner frees the region itself.
class FixedRegion {
 public:
  explicit FixedRegion(const DeviceRange& region);
  // Nothing: no piece of that size is free. Zero bytes take a unit.
  [[nodiscard]] std::optional<DeviceRange> Allocate(Bytes size);
  // What was allocated, as it was given.
  void Free(const DeviceRange& piece);
  [[nodiscard]] const DeviceRange& region() const { return region_; }

 private:
  [[nodiscard]] std::uint32_t UnitsOf(Bytes size) const;

  DeviceRange region_;
  Bytes unit_;
  Buddy pieces_;
};

}  // namespace troupe::gpu

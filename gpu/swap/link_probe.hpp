// How large a copy has to be before a larger one gains nothing.
#pragma once

#include <span>
#include <vector>

#include "base/units.hpp"
#include "gpu/device/device.hpp"

namespace troupe::gpu {

// What single copies of one size reached, alone on the link.
struct LinkPoint {
  Bytes size;
  BytesPerSecond bandwidth;
};

struct LinkCurve {
  std::vector<LinkPoint> points;  // growing sizes
  Bytes elbow;                    // the group size
};

// What a group has when nothing could be measured (002 section 4.3).
inline constexpr Bytes kUsualGroup = MiB(2);

// The smallest size that reaches nearly the best bandwidth of all; kUsualGroup without points.
[[nodiscard]] Bytes ElbowOf(std::span<const LinkPoint> points);

// Copies memory of its own to the device, sizes from 256 KiB to 16 MiB, each a few times, until a larger one
// gains nothing, a quarter of the device is reached or `budget` is spent. Once per link, before anybody else
// uses the device. Blocks.
[[nodiscard]] LinkCurve ProbeLink(Device& device, Duration budget);

}  // namespace troupe::gpu

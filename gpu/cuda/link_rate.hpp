// How fast a plain copy from pinned host memory is: what all others are measured against.
#pragma once

#include "base/units.hpp"
#include "gpu/cuda/context.hpp"
#include "gpu/device/device.hpp"

namespace troupe::gpu::cuda {

// The best rate of a few copies into `scratch`; zero (planned with as unlimited) when it cannot be told.
[[nodiscard]] BytesPerSecond MeasureLink(Context& context, DeviceRange scratch);

}  // namespace troupe::gpu::cuda

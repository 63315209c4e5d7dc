// How fast a plain copy from the host is: what all others are measured against.
#pragma once

#include "base/units.hpp"
#include "gpu/cuda/context.hpp"
#include "gpu/device/device.hpp"

namespace troupe::gpu::cuda {

// The best rate of copies into `scratch`, from memory that is pinned, as models are, or not; zero (planned with as
// unlimited) when it cannot be told. A link that was idle is slow at first: copies go on until two gain nothing.
[[nodiscard]] BytesPerSecond MeasureLink(Context& context, DeviceRange scratch, bool pinned);

}  // namespace troupe::gpu::cuda

// LAYOUT: how the elements of a tensor lie in device memory when they do not lie row-major. A layout is an
// opaque string that holds a oneDNN memory descriptor in a fixed little-endian form. Layouts of packed
// weights come from a file: nothing in them is trusted before ValidateLayout.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

// The device kind, instruction set and packer version that layouts are valid for: "cpu-avx512_core/1".
[[nodiscard]] std::string DeviceTarget();

}  // namespace troupe::gpu

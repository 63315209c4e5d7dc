// A stream of a GPU that makes none any more.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "gpu/device/device.hpp"

namespace troupe::gpu::cuda {

// All that is put on it ends at once with this error, on the caller's thread: the worker hears of the lost GPU from
// its health, and ends.
[[nodiscard]] std::unique_ptr<Stream> MakeLostStream(absl::Status why);

}  // namespace troupe::gpu::cuda

// What a plan decides of texts (BYTES) at its inputs and outputs: how much room they have.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

// What a device with kernels of its own says of an input or a step.
absl::Status NoTextsThere(const std::string& who);

// Of an input, whose shape has been checked.
[[nodiscard]] Bytes TextRoomOf(const proto::TensorSpec& spec);
// Of an output that has these elements; InvalidArgument when their lengths alone are too much.
absl::StatusOr<Bytes> RoomOfOutput(const std::string& label, const ValueInfo& elements);

// Texts one after the other, as a launch has them: at most `room` bytes.
[[nodiscard]] ValueInfo CollectedTexts(Bytes room);

}  // namespace troupe::gpu

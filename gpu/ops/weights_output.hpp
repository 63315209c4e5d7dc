// Where a model's weights are written, from the first byte to the last, and read again, so that a large model needs no memory.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::gpu {

class WeightsOutput {
 public:
  virtual ~WeightsOutput() = default;
  [[nodiscard]] virtual absl::Status Append(std::span<const std::byte> bytes) = 0;
  // All that was appended, for as long as the output lives.
  [[nodiscard]] virtual absl::StatusOr<std::span<const std::byte>> Read() = 0;
};

}  // namespace troupe::gpu

// Sliding windows: the attributes that convolution and pooling share, checked and made concrete.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

// One entry per spatial dimension.
struct Window {
  Shape kernel;
  Shape strides;
  Shape dilations;  // 1: dense
  Shape begin;      // padding before
  Shape end;        // padding after, as asked (ceil_mode may read beyond it)
  Shape out;        // output size
  bool ceil = false;
};

// Reads strides, dilations, pads and auto_pad for a window of size `kernel` over `spatial`.
absl::StatusOr<Window> ReadWindow(const StepContext& ctx, std::span<const std::int64_t> spatial,
                                  Shape kernel);
// The same attributes for a transposed convolution, with output_padding and output_shape.
absl::StatusOr<Window> ReadTransposedWindow(const StepContext& ctx, std::span<const std::int64_t> spatial,
                                            Shape kernel);
// Padding after each dimension that makes the output size follow exactly from the input's, as oneDNN wants
// it.
[[nodiscard]] Shape ExactEndPadding(const Window& window, std::span<const std::int64_t> spatial);

}  // namespace troupe::gpu

// How one axis is resized: for every place in the output, which places of the input it is made of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

enum class ResizeMode { kNearest, kLinear, kCubic };
enum class ResizeCoordinates {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kTfHalfPixelForNn,
  kTfCropAndResize
};
enum class ResizeRounding { kPreferFloor, kPreferCeil, kFloor, kCeil };

struct ResizeSettings {
  ResizeMode mode = ResizeMode::kNearest;
  ResizeCoordinates coordinates = ResizeCoordinates::kHalfPixel;
  ResizeRounding rounding = ResizeRounding::kPreferFloor;
  double cubic = -0.75;
  bool exclude_outside = false;
  // Where a length shrinks, each place is made of everything that falls onto it.
  bool antialias = false;
};

// The same number of taps for every place: 1, 2 or 4, or more under antialias.
struct ResizeTaps {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t count = 1;
  std::vector<std::int64_t> index;  // [out, count], within [0, in)
  std::vector<float> weight;        // [out, count]
  std::vector<bool> outside;        // [out]: extrapolated
  [[nodiscard]] bool identity() const;
};

// `scale` is the one given, which need not be out / in; [roi_start, roi_end] matters to kTfCropAndResize
// only. in > 0. Under antialias the tables have at most TapCount(settings, scale) * out entries.
[[nodiscard]] ResizeTaps MakeTaps(const ResizeSettings& settings, std::int64_t in, std::int64_t out,
                                  double scale, double roi_start, double roi_end);

[[nodiscard]] std::int64_t TapCount(const ResizeSettings& settings, double scale);

// Of a step Resize or Upsample: one for each axis of input 0. InvalidArgument says what it lacks.
[[nodiscard]] absl::StatusOr<std::vector<ResizeTaps>> ReadResizeTaps(const StepContext& ctx, Infos in);

}  // namespace troupe::gpu

// Shared by the operators on quantised tensors: real = (stored - zero point) * scale.
#pragma once

#include <cstdint>

#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

// A tensor seen as [outer, channels, inner], with one scale and zero point for each channel (or one for all).
struct QuantizedAxis {
  std::int64_t outer;
  std::int64_t channels;
  std::int64_t inner;
  // f(element, channel)
  template <class F>
  void ForEach(F&& f) const {
    std::int64_t i = 0;
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t c = 0; c < channels; ++c) {
        for (std::int64_t k = 0; k < inner; ++k) f(i++, c);
      }
    }
  }
};

// How input `scale` (and the zero point behind it) apply to input 0 along the attribute `axis`.
[[nodiscard]] absl::StatusOr<QuantizedAxis> ReadQuantizedAxis(const StepContext& ctx, Infos in,
                                                              std::size_t scale);
// Rounds to even, adds the zero point, saturates to UINT8 or INT8 and stores.
void QuantizeTo(proto::DataType type, std::byte* out, std::int64_t i, double scaled, std::int64_t zero);
// Element i of a UINT8, INT8 or INT32 tensor.
[[nodiscard]] std::int64_t SmallIntAt(const TensorView& view, std::int64_t i);

}  // namespace troupe::gpu

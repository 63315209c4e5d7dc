// Shared by the operators on quantised tensors: real = (stored - zero point) * scale.
#pragma once

#include <cstdint>

#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

inline constexpr TypeSet kByteTypes = TypesOf({proto::UINT8, proto::INT8});

// Input `scale` has to be one FP32, and the zero point behind it, which may be absent, one number of `type`.
[[nodiscard]] absl::Status CheckTensorScale(const StepContext& ctx, Infos in, std::size_t scale,
                                            proto::DataType type);

// A tensor seen as [outer, channels, inner], with one scale and zero point for each channel, or one for all, or one
// for each block of so many channels of each row (opset 21).
struct QuantizedAxis {
  std::int64_t outer;
  std::int64_t channels;
  std::int64_t inner;
  std::int64_t block = 0;  // 0: not in blocks
  // f(element, scale): which scale belongs to the element
  template <class F>
  void ForEach(F&& f) const {
    std::int64_t i = 0;
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t row = block == 0 ? c : (o * ((channels - 1) / block + 1) + c / block) * inner;
        for (std::int64_t k = 0; k < inner; ++k) f(i++, block == 0 ? row : row + k);
      }
    }
  }
};

// How input `scale` (and the zero point behind it) apply to input 0 along the attribute `axis`.
[[nodiscard]] absl::StatusOr<QuantizedAxis> ReadQuantizedAxis(const StepContext& ctx, Infos in,
                                                              std::size_t scale);
// Rounds to even, adds the zero point, saturates to an integer type of 8 or 16 bits and stores.
void QuantizeTo(proto::DataType type, std::byte* out, std::int64_t i, double scaled, std::int64_t zero);
// Element i of an integer tensor of 8, 16 or 32 bits, which is signed where it has 32.
[[nodiscard]] std::int64_t SmallIntAt(const TensorView& view, std::int64_t i);

}  // namespace troupe::gpu

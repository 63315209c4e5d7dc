// Conversion between element types, and kernels that compute in a wider type than their tensors have.
//
// Few types are computed in natively: FP32, FP64, INT32, INT64, UINT64. The others are widened before and
// narrowed after, so that a family is compiled five times and not thirteen.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

// Converts `count` elements. Float to integer truncates towards zero and saturates (NaN gives 0); integers
// wrap; anything but 0 is true. Both types must have a fixed element size. `from` and `to` must not overlap.
void ConvertElements(proto::DataType from_type, const std::byte* from, proto::DataType to_type, std::byte* to,
                     std::int64_t count);

[[nodiscard]] float HalfToFloat(std::uint16_t half);
[[nodiscard]] std::uint16_t FloatToHalf(float value);
// Inlined always, so that loops over them become vector instructions (bfloat_rows).
[[nodiscard, gnu::always_inline]] inline float BfloatToFloat(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}
// Rounds to the nearest value of BF16, and half-way between two to the even one. NaN stays NaN.
[[nodiscard, gnu::always_inline]] inline std::uint16_t FloatToBfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  return static_cast<std::uint16_t>(((bits & 0x7fffffffU) > 0x7f800000U ? bits | 0x400000U : rounded) >> 16);
}

// The type that values of `type` are computed in.
[[nodiscard]] proto::DataType WideType(proto::DataType type);
// FP16 and BF16 become FP32; every other type stays.
[[nodiscard]] proto::DataType FloatWideType(proto::DataType type);

using MakeFunction = Made (*)(const StepContext&, Infos, Infos);
using WidenFunction = proto::DataType (*)(proto::DataType);

// Makes the kernel by `make` for the given types; a tensor whose type differs is converted on its way in or
// out.
Made MakeConverted(MakeFunction make, const StepContext& ctx, Infos in, Infos out,
                   std::span<const proto::DataType> in_types, std::span<const proto::DataType> out_types);
// The usual case: every input and output type goes through `widen`.
Made MakeWidened(MakeFunction make, WidenFunction widen, const StepContext& ctx, Infos in, Infos out);

// An Operator::make that computes in wide types.
template <MakeFunction make>
Made Widened(const StepContext& ctx, Infos in, Infos out) {
  return MakeWidened(make, &WideType, ctx, in, out);
}
// An Operator::make that has no FP16 and BF16 of its own.
template <MakeFunction make>
Made FloatWidened(const StepContext& ctx, Infos in, Infos out) {
  return MakeWidened(make, &FloatWideType, ctx, in, out);
}

}  // namespace troupe::gpu

// Numbers of every element type, as the kernels' bodies read and write them.
#pragma once

#include <math.h>
#include <string.h>

#include "gpu/cuda/kernels/arguments.hpp"

// TROUPE_UNROLL, before a loop over an array: a GPU has registers for it when no index is left.
#ifdef __CUDACC__
#define TROUPE_BODY __host__ __device__ inline
#define TROUPE_UNROLL _Pragma("unroll")
#else
#define TROUPE_BODY inline
#define TROUPE_UNROLL
#endif

namespace troupe::gpu::cuda {

// Division of 64 bits is many instructions on a GPU. `i` is below the box's number of elements.
template <class Index, class Place>
TROUPE_BODY Place OffsetIn(const Box& box, const Strides& strides, Index i) {
  auto offset = static_cast<Place>(strides.base);
  for (int d = box.rank - 1; d > 0; --d) {
    const auto size = static_cast<Index>(box.size[d]);
    offset += static_cast<Place>(i % size) * static_cast<Place>(strides.by[d]);
    i /= size;
  }
  return box.rank == 0 ? offset : offset + static_cast<Place>(i) * static_cast<Place>(strides.by[0]);
}
TROUPE_BODY std::int64_t OffsetOf(const Box& box, const Strides& strides, std::int64_t i) {
  if (box.narrow) return OffsetIn<std::uint32_t, std::int32_t>(box, strides, static_cast<std::uint32_t>(i));
  return OffsetIn<std::int64_t, std::int64_t>(box, strides, i);
}

template <class To, class From>
TROUPE_BODY To BitsOf(From from) {
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

TROUPE_BODY float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 31U;
  const std::uint32_t fraction = half & 0x3ffU;
  if (exponent == 31) return BitsOf<float>(sign | 0x7f800000U | fraction << 13);
  if (exponent != 0) return BitsOf<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float tiny = static_cast<float>(fraction) * 0x1p-24F;
  return sign != 0 ? -tiny : tiny;
}
// To the nearest, halves to even.
TROUPE_BODY std::uint16_t FloatToHalf(float value) {
  const auto bits = BitsOf<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  std::uint32_t size = bits & 0x7fffffffU;
  if (size > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (size >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // 65520 and above
  if (size < 0x38800000U)                                                      // below 2^-14
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(rintf(fabsf(value) * 0x1p24F)));
  size += 0xfffU + ((size >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | (size - 0x38000000U) >> 13);
}
TROUPE_BODY float BfloatToFloat(std::uint16_t value) {
  return BitsOf<float>(static_cast<std::uint32_t>(value) << 16);
}
TROUPE_BODY std::uint16_t FloatToBfloat(float value) {
  const auto bits = BitsOf<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

TROUPE_BODY bool IsReal(Element type) {
  return type == Element::kFp32 || type == Element::kFp64 || type == Element::kFp16 || type == Element::kBf16;
}

TROUPE_BODY double LoadReal(Element type, const void* data, std::int64_t i) {
  switch (type) {
    case Element::kFp64:
      return static_cast<const double*>(data)[i];
    case Element::kFp16:
      return static_cast<double>(HalfToFloat(static_cast<const std::uint16_t*>(data)[i]));
    case Element::kBf16:
      return static_cast<double>(BfloatToFloat(static_cast<const std::uint16_t*>(data)[i]));
    default:
      return static_cast<double>(static_cast<const float*>(data)[i]);
  }
}
TROUPE_BODY void StoreReal(Element type, void* data, std::int64_t i, double value) {
  switch (type) {
    case Element::kFp64:
      static_cast<double*>(data)[i] = value;
      return;
    case Element::kFp16:
      static_cast<std::uint16_t*>(data)[i] = FloatToHalf(static_cast<float>(value));
      return;
    case Element::kBf16:
      static_cast<std::uint16_t*>(data)[i] = FloatToBfloat(static_cast<float>(value));
      return;
    default:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      return;
  }
}

// Integers saturate, and get 0 for NaN.
TROUPE_BODY std::int64_t IntegerOf(double value) {
  if (value != value) return 0;
  if (value >= 9223372036854775807.0) return INT64_MAX;
  if (value <= -9223372036854775808.0) return INT64_MIN;
  return static_cast<std::int64_t>(value);
}

// UINT64 as the INT64 of the same bits.
TROUPE_BODY std::int64_t LoadInteger(Element type, const void* data, std::int64_t i) {
  switch (type) {
    case Element::kInt8:
      return static_cast<const std::int8_t*>(data)[i];
    case Element::kInt16:
      return static_cast<const std::int16_t*>(data)[i];
    case Element::kInt32:
      return static_cast<const std::int32_t*>(data)[i];
    case Element::kUint16:
      return static_cast<const std::uint16_t*>(data)[i];
    case Element::kUint32:
      return static_cast<const std::uint32_t*>(data)[i];
    case Element::kInt64:
    case Element::kUint64:
      return static_cast<const std::int64_t*>(data)[i];
    default:
      return static_cast<const std::uint8_t*>(data)[i];
  }
}
// Wraps; anything but 0 is true.
TROUPE_BODY void StoreInteger(Element type, void* data, std::int64_t i, std::int64_t value) {
  switch (type) {
    case Element::kBool:
      static_cast<std::uint8_t*>(data)[i] = value != 0 ? 1 : 0;
      return;
    case Element::kUint8:
    case Element::kInt8:
      static_cast<std::uint8_t*>(data)[i] = static_cast<std::uint8_t>(value);
      return;
    case Element::kUint16:
    case Element::kInt16:
      static_cast<std::uint16_t*>(data)[i] = static_cast<std::uint16_t>(value);
      return;
    case Element::kUint32:
    case Element::kInt32:
      static_cast<std::uint32_t*>(data)[i] = static_cast<std::uint32_t>(value);
      return;
    default:
      static_cast<std::int64_t*>(data)[i] = value;
      return;
  }
}

// Sixteen bytes that begin at a multiple of as many: one access of the GPU's.
struct alignas(16) FourWords {
  std::uint32_t at[4];
};
struct alignas(16) FourFloats {
  float at[kFour];
};

TROUPE_BODY void MoveElement(std::int32_t size, void* to, std::int64_t to_at, const void* from,
                             std::int64_t from_at) {
  switch (size) {
    case 1:
      static_cast<std::uint8_t*>(to)[to_at] = static_cast<const std::uint8_t*>(from)[from_at];
      return;
    case 2:
      static_cast<std::uint16_t*>(to)[to_at] = static_cast<const std::uint16_t*>(from)[from_at];
      return;
    case 4:
      static_cast<std::uint32_t*>(to)[to_at] = static_cast<const std::uint32_t*>(from)[from_at];
      return;
    case 16:
      static_cast<FourWords*>(to)[to_at] = static_cast<const FourWords*>(from)[from_at];
      return;
    default:
      static_cast<std::uint64_t*>(to)[to_at] = static_cast<const std::uint64_t*>(from)[from_at];
      return;
  }
}

}  // namespace troupe::gpu::cuda

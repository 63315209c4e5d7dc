// What each kernel does for one element, the same source on the GPU and on the host: the fake driver runs it
// there, so that tests reach every line. row_bodies.hpp has those that do a row.
#pragma once

#include <math.h>

#include "gpu/cuda/kernels/arguments.hpp"

#ifdef __CUDACC__
#define TROUPE_BODY __host__ __device__ inline
#else
#define TROUPE_BODY inline
#endif

namespace troupe::gpu::cuda {

TROUPE_BODY std::int64_t OffsetOf(const Box& box, const Strides& strides, std::int64_t i) {
  std::int64_t offset = strides.base;
  for (int d = box.rank; d-- > 0;) {
    offset += i % box.size[d] * strides.by[d];
    i /= box.size[d];
  }
  return offset;
}

TROUPE_BODY float SigmoidOf(float x) {
  return 1.0F / (1.0F + expf(-x));
}
TROUPE_BODY float ClampOf(float x, float low, float high) {
  return x < low ? low : (x > high ? high : x);
}

TROUPE_BODY float Apply(const Function& f, float x) {
  switch (f.op) {
    case UnaryOp::kNone:
      return x;
    case UnaryOp::kAbs:
      return fabsf(x);
    case UnaryOp::kNeg:
      return -x;
    case UnaryOp::kSqrt:
      return sqrtf(x);
    case UnaryOp::kReciprocal:
      return 1.0F / x;
    case UnaryOp::kExp:
      return expf(x);
    case UnaryOp::kLog:
      return logf(x);
    case UnaryOp::kErf:
      return erff(x);
    case UnaryOp::kGelu:
      return x / 2 * (1 + erff(x * 0.70710678118654752F));
    case UnaryOp::kSigmoid:
      return SigmoidOf(x);
    case UnaryOp::kTanh:
      return tanhf(x);
    case UnaryOp::kSin:
      return sinf(x);
    case UnaryOp::kCos:
      return cosf(x);
    case UnaryOp::kFloor:
      return floorf(x);
    case UnaryOp::kCeil:
      return ceilf(x);
    case UnaryOp::kRound:
      return rintf(x);  // halves to even
    case UnaryOp::kSign:
      return static_cast<float>((x > 0) - (x < 0));
    case UnaryOp::kRelu:
      return x < 0 ? 0.0F : x;
    case UnaryOp::kSoftplus:
      return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
    case UnaryOp::kSoftsign:
      return x / (1 + fabsf(x));
    case UnaryOp::kLeakyRelu:
      return x < 0 ? f.a * x : x;
    case UnaryOp::kThresholdedRelu:
      return x > f.a ? x : 0.0F;
    case UnaryOp::kElu:
      return x < 0 ? f.a * expm1f(x) : x;
    case UnaryOp::kCelu:
      return x < 0 ? f.a * expm1f(x / f.a) : x;
    case UnaryOp::kSelu:
      return x > 0 ? f.b * x : f.b * f.a * expm1f(x);
    case UnaryOp::kHardSigmoid:
      return ClampOf(f.a * x + f.b, 0, 1);
    case UnaryOp::kHardSwish:
      return x * ClampOf(x / 6 + 0.5F, 0, 1);
    case UnaryOp::kClip:
      return ClampOf(x, f.a, f.b);
    case UnaryOp::kShrink:
      return x < -f.b ? x + f.a : (x > f.b ? x - f.a : 0.0F);
    case UnaryOp::kScale:
      return f.a * x;
  }
  return x;
}

TROUPE_BODY void RunUnary(const UnaryArguments& a, std::int64_t i) {
  a.out[i] = Apply(a.function, a.in[i]);
}

// Integer arithmetic wraps, x / 0 is 0: as on the CPU (gpu/ops/binary_functions.hpp).
TROUPE_BODY std::int64_t IntegerResult(BinaryOp op, std::int64_t x, std::int64_t y) {
  const auto u = static_cast<std::uint64_t>(x);
  const auto v = static_cast<std::uint64_t>(y);
  switch (op) {
    case BinaryOp::kAdd:
      return static_cast<std::int64_t>(u + v);
    case BinaryOp::kSub:
      return static_cast<std::int64_t>(u - v);
    case BinaryOp::kMul:
      return static_cast<std::int64_t>(u * v);
    case BinaryOp::kDiv:
      return y == 0 ? 0 : (y == -1 ? static_cast<std::int64_t>(0 - u) : x / y);
    case BinaryOp::kMax:
      return x > y ? x : y;
    case BinaryOp::kMin:
      return x < y ? x : y;
    default:
      return 0;
  }
}

// NaN wins over any number.
TROUPE_BODY float FloatResult(BinaryOp op, float x, float y) {
  switch (op) {
    case BinaryOp::kAdd:
      return x + y;
    case BinaryOp::kSub:
      return x - y;
    case BinaryOp::kMul:
      return x * y;
    case BinaryOp::kDiv:
      return x / y;
    case BinaryOp::kPow:
      return powf(x, y);
    case BinaryOp::kMax:
      return x > y || x != x ? x : y;
    case BinaryOp::kMin:
      return x < y || x != x ? x : y;
    case BinaryOp::kPRelu:
      return x < 0 ? x * y : x;
    default:
      return 0;
  }
}

template <class T>
TROUPE_BODY bool Truth(BinaryOp op, T x, T y) {
  switch (op) {
    case BinaryOp::kEqual:
      return x == y;
    case BinaryOp::kLess:
      return x < y;
    case BinaryOp::kLessOrEqual:
      return x <= y;
    case BinaryOp::kGreater:
      return x > y;
    case BinaryOp::kGreaterOrEqual:
      return x >= y;
    case BinaryOp::kAnd:
      return x != T(0) && y != T(0);
    case BinaryOp::kOr:
      return x != T(0) || y != T(0);
    case BinaryOp::kXor:
      return (x != T(0)) != (y != T(0));
    case BinaryOp::kNor:
      return x == T(0) && y == T(0);
    default:
      return false;
  }
}

TROUPE_BODY std::int64_t LoadInteger(Element type, const void* data, std::int64_t i) {
  switch (type) {
    case Element::kInt8:
      return static_cast<const std::int8_t*>(data)[i];
    case Element::kInt32:
      return static_cast<const std::int32_t*>(data)[i];
    case Element::kInt64:
      return static_cast<const std::int64_t*>(data)[i];
    default:
      return static_cast<const std::uint8_t*>(data)[i];
  }
}

TROUPE_BODY void RunBinary(const BinaryArguments& a, std::int64_t i) {
  const std::int64_t x_at = OffsetOf(a.box, a.in_a, i);
  const std::int64_t y_at = OffsetOf(a.box, a.in_b, i);
  const bool truth = a.op >= BinaryOp::kEqual;
  if (a.type == Element::kFp32) {
    const float x = static_cast<const float*>(a.a)[x_at];
    const float y = static_cast<const float*>(a.b)[y_at];
    if (truth) {
      static_cast<std::uint8_t*>(a.out)[i] = Truth(a.op, x, y) ? 1 : 0;
    } else {
      static_cast<float*>(a.out)[i] = Apply(a.after, FloatResult(a.op, x, y));
    }
    return;
  }
  const std::int64_t x = LoadInteger(a.type, a.a, x_at);
  const std::int64_t y = LoadInteger(a.type, a.b, y_at);
  if (truth) {
    static_cast<std::uint8_t*>(a.out)[i] = Truth(a.op, x, y) ? 1 : 0;
  } else if (a.type == Element::kInt64) {
    static_cast<std::int64_t*>(a.out)[i] = IntegerResult(a.op, x, y);
  } else {
    static_cast<std::int32_t*>(a.out)[i] = static_cast<std::int32_t>(IntegerResult(a.op, x, y));
  }
}

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
    default:
      static_cast<std::uint64_t*>(to)[to_at] = static_cast<const std::uint64_t*>(from)[from_at];
      return;
  }
}

TROUPE_BODY void RunWhere(const WhereArguments& a, std::int64_t i) {
  const bool first = a.condition[OffsetOf(a.box, a.in_condition, i)] != 0;
  MoveElement(a.element_size, a.out, i, first ? a.a : a.b, OffsetOf(a.box, first ? a.in_a : a.in_b, i));
}

TROUPE_BODY void StoreInteger(Element type, void* data, std::int64_t i, std::int64_t value) {
  switch (type) {
    case Element::kBool:
      static_cast<std::uint8_t*>(data)[i] = value != 0 ? 1 : 0;
      return;
    case Element::kUint8:
    case Element::kInt8:
      static_cast<std::uint8_t*>(data)[i] = static_cast<std::uint8_t>(value);
      return;
    case Element::kInt32:
      static_cast<std::int32_t*>(data)[i] = static_cast<std::int32_t>(value);
      return;
    case Element::kInt64:
      static_cast<std::int64_t*>(data)[i] = value;
      return;
    case Element::kFp32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      return;
    case Element::kFp64:
      static_cast<double*>(data)[i] = static_cast<double>(value);
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

TROUPE_BODY void RunCast(const CastArguments& a, std::int64_t i) {
  if (a.from != Element::kFp32 && a.from != Element::kFp64)
    return StoreInteger(a.to, a.out, i, LoadInteger(a.from, a.in, i));
  const double value = a.from == Element::kFp32 ? static_cast<double>(static_cast<const float*>(a.in)[i])
                                                : static_cast<const double*>(a.in)[i];
  if (a.to == Element::kFp32) {
    static_cast<float*>(a.out)[i] = static_cast<float>(value);
  } else if (a.to == Element::kFp64) {
    static_cast<double*>(a.out)[i] = value;
  } else if (a.to == Element::kBool) {
    static_cast<std::uint8_t*>(a.out)[i] = value != 0 ? 1 : 0;
  } else {
    StoreInteger(a.to, a.out, i, IntegerOf(value));
  }
}

TROUPE_BODY void RunMove(const MoveArguments& a, std::int64_t i) {
  MoveElement(a.element_size, a.out, OffsetOf(a.box, a.to, i), a.in, OffsetOf(a.box, a.from, i));
}

TROUPE_BODY void RunLookup(const LookupArguments& a, std::int64_t i) {
  const std::int64_t from = a.table[i];
  if (from == 0) {
    MoveElement(a.element_size, a.out, i, &a.filler, 0);
  } else {
    MoveElement(a.element_size, a.out, i, a.in, from - 1);
  }
}

TROUPE_BODY void RunGather(const GatherArguments& a, std::int64_t i) {
  const std::int64_t within = i % a.block;
  const std::int64_t place = i / a.block;
  const std::int64_t outer = place / a.chosen;
  std::int64_t index = LoadInteger(a.index_type, a.indices, place % a.chosen);
  if (index < 0) index += a.dim;
  if (index < 0 || index >= a.dim) {
    const std::uint64_t zero = 0;
    *a.trouble = 1;
    return MoveElement(a.element_size, a.out, i, &zero, 0);
  }
  MoveElement(a.element_size, a.out, i, a.in, (outer * a.dim + index) * a.block + within);
}

TROUPE_BODY void RunPool(const PoolArguments& a, std::int64_t i) {
  std::int64_t at[3];
  std::int64_t rest = i;
  for (int d = 3; d-- > 0;) {
    at[d] = rest % a.out_size[d];
    rest /= a.out_size[d];
  }
  const float* const plane = a.in + rest * a.size[0] * a.size[1] * a.size[2];
  std::int64_t inside = 0;
  std::int64_t counted = 1;  // taps within the padded input: what ceil_mode adds beyond does not count
  for (int d = 0; d < 3; ++d) {
    std::int64_t taps = 0;
    for (std::int64_t k = 0; k < a.kernel[d]; ++k) {
      if (at[d] * a.stride[d] - a.begin[d] + k * a.dilation[d] < a.size[d] + a.end[d]) ++taps;
    }
    counted *= taps;
  }
  float value = a.op == PoolOp::kMax ? -INFINITY : 0.0F;
  for (std::int64_t p = 0; p < a.kernel[0]; ++p) {
    const std::int64_t z = at[0] * a.stride[0] - a.begin[0] + p * a.dilation[0];
    if (z < 0 || z >= a.size[0]) continue;
    for (std::int64_t q = 0; q < a.kernel[1]; ++q) {
      const std::int64_t y = at[1] * a.stride[1] - a.begin[1] + q * a.dilation[1];
      if (y < 0 || y >= a.size[1]) continue;
      for (std::int64_t r = 0; r < a.kernel[2]; ++r) {
        const std::int64_t x = at[2] * a.stride[2] - a.begin[2] + r * a.dilation[2];
        if (x < 0 || x >= a.size[2]) continue;
        const float element = plane[(z * a.size[1] + y) * a.size[2] + x];
        if (a.op == PoolOp::kAverage) {
          value += element;
        } else if (inside == 0 || element > value) {
          value = element;
        }
        ++inside;
      }
    }
  }
  const std::int64_t divisor = a.count_padding ? counted : inside;
  if (a.op == PoolOp::kAverage) value = divisor == 0 ? 0.0F : value / static_cast<float>(divisor);
  a.out[i] = value;
}

TROUPE_BODY void RunBatchNorm(const BatchNormArguments& a, std::int64_t i) {
  const std::int64_t c = i / a.plane % a.channels;
  const float factor = a.scale[c] / sqrtf(a.variance[c] + a.epsilon);
  a.out[i] = Apply(a.after, (a.in[i] - a.mean[c]) * factor + a.shift[c]);
}

TROUPE_BODY void RunLrn(const LrnArguments& a, std::int64_t i) {
  const std::int64_t c = i / a.plane % a.channels;
  const std::int64_t low = c - (a.size - 1) / 2 < 0 ? 0 : c - (a.size - 1) / 2;
  const std::int64_t high = c + a.size / 2 > a.channels - 1 ? a.channels - 1 : c + a.size / 2;
  float sum = 0;
  for (std::int64_t k = low; k <= high; ++k) {
    const float value = a.in[i + (k - c) * a.plane];
    sum += value * value;
  }
  a.out[i] = a.in[i] / powf(a.bias + a.alpha * sum, a.beta);
}

TROUPE_BODY void RunFinish(const FinishArguments& a, std::int64_t i) {
  float value = a.out[i];
  if (a.bias != nullptr) value += a.bias[i / a.plane % a.channels];
  if (a.addend != nullptr) value += a.addend[i];
  a.out[i] = Apply(a.after, value);
}

}  // namespace troupe::gpu::cuda

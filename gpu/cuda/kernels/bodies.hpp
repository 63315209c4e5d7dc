// What each kernel does for one element, the same source on the GPU and on the host: the fake driver runs it
// there, so that tests reach every line. row_bodies.hpp has the kernels that do a row.
#pragma once

#include "gpu/cuda/kernels/numbers.hpp"

namespace troupe::gpu::cuda {

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
    case UnaryOp::kQuickGelu:
      return x / (1 + expf(-f.a * x));
    case UnaryOp::kClip:
      return ClampOf(x, f.a, f.b);
    case UnaryOp::kShrink:
      return x < -f.b ? x + f.a : (x > f.b ? x - f.a : 0.0F);
    case UnaryOp::kScale:
      return f.a * x;
    case UnaryOp::kTan:
      return tanf(x);
    case UnaryOp::kAsin:
      return asinf(x);
    case UnaryOp::kAcos:
      return acosf(x);
    case UnaryOp::kAtan:
      return atanf(x);
    case UnaryOp::kSinh:
      return sinhf(x);
    case UnaryOp::kCosh:
      return coshf(x);
    case UnaryOp::kAsinh:
      return asinhf(x);
    case UnaryOp::kAcosh:
      return acoshf(x);
    case UnaryOp::kAtanh:
      return atanhf(x);
  }
  return x;
}

TROUPE_BODY void RunUnary(const UnaryArguments& a, std::int64_t i) {
  if (a.elements == 0) {
    a.out[i] = Apply(a.function, a.in[i]);
    return;
  }
  const std::int64_t begin = i * kFour;
  if (a.elements - begin < kFour) {
    for (std::int64_t at = begin; at < a.elements; ++at) a.out[at] = Apply(a.function, a.in[at]);
    return;
  }
  FourFloats four = *reinterpret_cast<const FourFloats*>(a.in + begin);
  TROUPE_UNROLL
  for (int at = 0; at < kFour; ++at) four.at[at] = Apply(a.function, four.at[at]);
  *reinterpret_cast<FourFloats*>(a.out + begin) = four;
}

TROUPE_BODY void RunTest(const TestArguments& a, std::int64_t i) {
  const float x = a.in[i];
  a.out[i] = (a.nan && x != x) || (a.positive && x == INFINITY) || (a.negative && x == -INFINITY) ? 1 : 0;
}

TROUPE_BODY std::uint64_t WholePower(std::uint64_t base, std::uint64_t exponent) {
  std::uint64_t result = 1;
  for (; exponent != 0; exponent >>= 1, base *= base) {
    if ((exponent & 1U) != 0) result *= base;
  }
  return result;
}

// Unsigned, where its own division and order matter; the rest is as for signed numbers.
TROUPE_BODY std::uint64_t UnsignedResult(BinaryOp op, std::uint64_t x, std::uint64_t y) {
  switch (op) {
    case BinaryOp::kDiv:
      return y == 0 ? 0 : x / y;
    case BinaryOp::kMax:
      return x > y ? x : y;
    case BinaryOp::kMin:
      return x < y ? x : y;
    case BinaryOp::kMod:
    case BinaryOp::kFmod:
      return y == 0 ? 0 : x % y;
    case BinaryOp::kShiftLeft:
      return y > 63 ? 0 : x << y;
    case BinaryOp::kShiftRight:
      return y > 63 ? 0 : x >> y;
    case BinaryOp::kPow:
      return WholePower(x, y);
    case BinaryOp::kAdd:
      return x + y;
    case BinaryOp::kSub:
      return x - y;
    case BinaryOp::kMul:
      return x * y;
    default:
      return 0;
  }
}

// Integer arithmetic wraps, x / 0 is 0: as on the CPU (gpu/ops/binary_functions.hpp).
TROUPE_BODY std::int64_t IntegerResult(BinaryOp op, std::int64_t x, std::int64_t y) {
  const auto u = static_cast<std::uint64_t>(x);
  switch (op) {
    case BinaryOp::kDiv:
      return y == 0 ? 0 : (y == -1 ? static_cast<std::int64_t>(0 - u) : x / y);
    case BinaryOp::kMax:
      return x > y ? x : y;
    case BinaryOp::kMin:
      return x < y ? x : y;
    case BinaryOp::kPRelu:
      return x < 0 ? static_cast<std::int64_t>(u * static_cast<std::uint64_t>(y)) : x;
    case BinaryOp::kFmod:
      return y == 0 || y == -1 ? 0 : x % y;
    case BinaryOp::kMod: {
      const std::int64_t rest = y == 0 || y == -1 ? 0 : x % y;
      return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
    }
    case BinaryOp::kPow:
      if (y < 0) return x == 1 ? 1 : (x == -1 ? ((y & 1) != 0 ? -1 : 1) : 0);
      break;
    default:
      break;
  }
  return static_cast<std::int64_t>(UnsignedResult(op, u, static_cast<std::uint64_t>(y)));
}

TROUPE_BODY float PowerOf(float x, float y) {
  return powf(x, y);
}
TROUPE_BODY double PowerOf(double x, double y) {
  return pow(x, y);
}
TROUPE_BODY float RestOf(float x, float y) {
  return fmodf(x, y);
}
TROUPE_BODY double RestOf(double x, double y) {
  return fmod(x, y);
}

// NaN wins over any number.
template <class T>
TROUPE_BODY T RealResult(BinaryOp op, T x, T y) {
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
      return PowerOf(x, y);
    case BinaryOp::kMax:
      return x > y || x != x ? x : y;
    case BinaryOp::kMin:
      return x < y || x != x ? x : y;
    case BinaryOp::kPRelu:
      return x < 0 ? x * y : x;
    case BinaryOp::kFmod:
      return RestOf(x, y);
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

TROUPE_BODY double AsReal(Element type, const void* data, std::int64_t i) {
  if (IsReal(type)) return LoadReal(type, data, i);
  const std::int64_t whole = LoadInteger(type, data, i);
  return type == Element::kUint64 ? static_cast<double>(static_cast<std::uint64_t>(whole))
                                  : static_cast<double>(whole);
}

// One number for all four, or four that lie together.
TROUPE_BODY FourFloats LoadFour(const float* from, std::int64_t step) {
  if (step != 0) return *reinterpret_cast<const FourFloats*>(from);
  const float x = *from;
  return {{x, x, x, x}};
}

// They lie in one row of the box, but for the last ones of a box that is one row.
TROUPE_BODY void RunBinaryFours(const BinaryArguments& a, std::int64_t i) {
  const std::int64_t begin = i * kFour;
  const std::int64_t x_step = a.in_a.by[a.box.rank - 1];
  const std::int64_t y_step = a.in_b.by[a.box.rank - 1];
  const float* const x = static_cast<const float*>(a.a) + OffsetOf(a.box, a.in_a, begin);
  const float* const y = static_cast<const float*>(a.b) + OffsetOf(a.box, a.in_b, begin);
  float* const out = static_cast<float*>(a.out) + begin;
  const std::int64_t left = a.elements - begin;
  if (left < kFour) {
    for (std::int64_t at = 0; at < left; ++at)
      out[at] = Apply(a.after, RealResult(a.op, x[at * x_step], y[at * y_step]));
    return;
  }
  const FourFloats u = LoadFour(x, x_step);
  const FourFloats v = LoadFour(y, y_step);
  FourFloats four;
  TROUPE_UNROLL
  for (int at = 0; at < kFour; ++at) four.at[at] = Apply(a.after, RealResult(a.op, u.at[at], v.at[at]));
  *reinterpret_cast<FourFloats*>(out) = four;
}

TROUPE_BODY void RunBinary(const BinaryArguments& a, std::int64_t i) {
  if (a.elements != 0) return RunBinaryFours(a, i);
  const std::int64_t x_at = OffsetOf(a.box, a.in_a, i);
  const std::int64_t y_at = OffsetOf(a.box, a.in_b, i);
  const bool truth = a.op >= BinaryOp::kEqual;
  auto* const truths = static_cast<std::uint8_t*>(a.out);
  if (a.type == Element::kFp32 && a.other == Element::kFp32) {
    const float x = static_cast<const float*>(a.a)[x_at];
    const float y = static_cast<const float*>(a.b)[y_at];
    if (truth) {
      truths[i] = Truth(a.op, x, y) ? 1 : 0;
    } else {
      static_cast<float*>(a.out)[i] = Apply(a.after, RealResult(a.op, x, y));
    }
  } else if (IsReal(a.type) || IsReal(a.other)) {
    const double x = AsReal(a.type, a.a, x_at);
    const double y = AsReal(a.other, a.b, y_at);
    if (truth) {
      truths[i] = Truth(a.op, x, y) ? 1 : 0;
    } else if (IsReal(a.type)) {
      StoreReal(a.type, a.out, i, RealResult(a.op, x, y) * a.scale);
    } else {
      StoreInteger(a.type, a.out, i, IntegerOf(RealResult(a.op, x, y)));
    }
  } else {
    const std::int64_t x = LoadInteger(a.type, a.a, x_at);
    const std::int64_t y = LoadInteger(a.other, a.b, y_at);
    const bool wide = a.type == Element::kUint64;
    const auto u = static_cast<std::uint64_t>(x);
    const auto v = static_cast<std::uint64_t>(y);
    if (truth) {
      truths[i] = (wide ? Truth(a.op, u, v) : Truth(a.op, x, y)) ? 1 : 0;
    } else {
      StoreInteger(a.type, a.out, i,
                   wide ? static_cast<std::int64_t>(UnsignedResult(a.op, u, v)) : IntegerResult(a.op, x, y));
    }
  }
}

TROUPE_BODY void RunWhere(const WhereArguments& a, std::int64_t i) {
  const bool first = a.condition[OffsetOf(a.box, a.in_condition, i)] != 0;
  MoveElement(a.element_size, a.out, i, first ? a.a : a.b, OffsetOf(a.box, first ? a.in_a : a.in_b, i));
}

// To integers of 8 and 16 bits too: what does not fit becomes the nearest that does.
TROUPE_BODY double Saturated(Element to, double value) {
  double low = 0;
  double high = 0;
  switch (to) {
    case Element::kUint8:
      high = 255;
      break;
    case Element::kInt8:
      low = -128;
      high = 127;
      break;
    case Element::kUint16:
      high = 65535;
      break;
    case Element::kInt16:
      low = -32768;
      high = 32767;
      break;
    case Element::kUint32:
      high = 4294967295.0;
      break;
    case Element::kInt32:
      low = -2147483648.0;
      high = 2147483647.0;
      break;
    default:
      return value;
  }
  return value < low ? low : (value > high ? high : value);
}

TROUPE_BODY void RunCast(const CastArguments& a, std::int64_t i) {
  const bool from_real = IsReal(a.from);
  if (IsReal(a.to)) return StoreReal(a.to, a.out, i, AsReal(a.from, a.in, i));
  if (!from_real) return StoreInteger(a.to, a.out, i, LoadInteger(a.from, a.in, i));
  const double value = LoadReal(a.from, a.in, i);
  if (a.to == Element::kBool) {
    static_cast<std::uint8_t*>(a.out)[i] = value != 0 ? 1 : 0;
  } else if (a.to == Element::kUint64) {
    const bool large = value >= 9223372036854775808.0;
    const std::uint64_t whole =
        value >= 18446744073709551615.0
            ? UINT64_MAX
            : (large ? static_cast<std::uint64_t>(value)
                     : static_cast<std::uint64_t>(IntegerOf(value < 0 ? 0.0 : value)));
    static_cast<std::uint64_t*>(a.out)[i] = whole;
  } else {
    StoreInteger(a.to, a.out, i, IntegerOf(Saturated(a.to, value)));
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

}  // namespace troupe::gpu::cuda

// What our own kernels are told: plain data, passed by value to a launch. Pointers are the GPU's. `count`
// (elements, or rows) comes first: as many independent pieces of work, of which each thread (or warp) does
// some.
#pragma once

#include <cstdint>

namespace troupe::gpu::cuda {

inline constexpr int kMaxRank = 8;

// A box of elements and where each lies in a tensor: sum of index x stride, in elements.
struct Box {
  std::int32_t rank = 0;
  std::int64_t size[kMaxRank] = {};
  bool narrow = false;  // 32 bits hold each of its places, and each part of the sum (ops/boxes.hpp)
};
struct Strides {
  std::int64_t base = 0;
  std::int64_t by[kMaxRank] = {};
};

enum class Element : std::int32_t {
  kBool,
  kUint8,
  kInt8,
  kInt32,
  kInt64,
  kFp32,
  kFp64,
  kUint16,
  kInt16,
  kUint32,
  kUint64,
  kFp16,
  kBf16
};

// y = f(x), with up to two parameters (gpu/ops/activation.hpp names them).
enum class UnaryOp : std::int32_t {
  kNone,
  kAbs,
  kNeg,
  kSqrt,
  kReciprocal,
  kExp,
  kLog,
  kErf,
  kGelu,
  kSigmoid,
  kTanh,
  kSin,
  kCos,
  kFloor,
  kCeil,
  kRound,
  kSign,
  kRelu,
  kSoftplus,
  kSoftsign,
  kLeakyRelu,
  kThresholdedRelu,
  kElu,
  kCelu,
  kSelu,
  kHardSigmoid,
  kHardSwish,
  kQuickGelu,  // x sigmoid(a x)
  kClip,
  kShrink,
  kScale,  // a x
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,
  kAtanh,
};
struct Function {
  UnaryOp op = UnaryOp::kNone;
  float a = 0;
  float b = 0;
};
// What a thread reads and writes at once, where it can.
inline constexpr std::int64_t kFour = 4;
struct UnaryArguments {
  std::int64_t count = 0;
  const float* in = nullptr;
  float* out = nullptr;
  Function function;
  std::int64_t elements = 0;  // 0: `count`; else as many, of which each of `count` threads does four
};

enum class BinaryOp : std::int32_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kMax,
  kMin,
  kPRelu,
  kMod,   // with the divisor's sign
  kFmod,  // with the dividend's
  kShiftLeft,
  kShiftRight,
  // From here on the result is a truth value.
  kEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kAnd,
  kOr,
  kXor,
  kNor,
};
struct BinaryArguments {
  std::int64_t count = 0;
  BinaryOp op{};
  Element type{};   // of the first input, and of the result
  Element other{};  // of the second, which differs for powers only
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
  Box box;  // the output's, which is dense
  Strides in_a;
  Strides in_b;
  Function after;             // of FP32 results
  double scale = 1;           // of other real ones
  std::int64_t elements = 0;  // as for one input: FP32 to FP32, and in_a and in_b by 0 or 1 at their end
};

// Truth values: whether an element is NaN, or infinite.
struct TestArguments {
  std::int64_t count = 0;
  const float* in = nullptr;
  std::uint8_t* out = nullptr;
  bool nan = false;
  bool positive = false;
  bool negative = false;
};

struct WhereArguments {
  std::int64_t count = 0;
  std::int32_t element_size = 0;
  const std::uint8_t* condition = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
  Box box;
  Strides in_condition;
  Strides in_a;
  Strides in_b;
};

struct CastArguments {
  std::int64_t count = 0;
  Element from{};
  Element to{};
  const void* in = nullptr;
  void* out = nullptr;
};

// Moves a box from one strided place to another.
struct MoveArguments {
  std::int64_t count = 0;
  std::int32_t element_size = 0;
  const void* in = nullptr;
  void* out = nullptr;
  Box box;
  Strides from;
  Strides to;
};

// out[i] = in[table[i] - 1], or the filler where the table says 0.
struct LookupArguments {
  std::int64_t count = 0;
  std::int32_t element_size = 0;
  const void* in = nullptr;
  void* out = nullptr;
  const std::uint32_t* table = nullptr;
  std::uint64_t filler = 0;  // its first bytes
};

}  // namespace troupe::gpu::cuda

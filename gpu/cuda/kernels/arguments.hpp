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
};
struct Strides {
  std::int64_t base = 0;
  std::int64_t by[kMaxRank] = {};
};

enum class Element : std::int32_t { kBool, kUint8, kInt8, kInt32, kInt64, kFp32, kFp64 };

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
  kClip,
  kShrink,
  kScale,  // a x
};
struct Function {
  UnaryOp op = UnaryOp::kNone;
  float a = 0;
  float b = 0;
};
struct UnaryArguments {
  std::int64_t count = 0;
  const float* in = nullptr;
  float* out = nullptr;
  Function function;
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
  Element type{};  // of both inputs
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
  Box box;  // the output's, which is dense
  Strides in_a;
  Strides in_b;
  Function after;  // of FP32 results
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

// Rows of `block` elements that indices choose; an index outside sets *trouble and gives zeros.
struct GatherArguments {
  std::int64_t count = 0;  // of the output's elements
  std::int32_t element_size = 0;
  const void* in = nullptr;
  const void* indices = nullptr;
  void* out = nullptr;
  Element index_type{};
  std::int64_t chosen = 0;  // indices
  std::int64_t dim = 0;     // that they choose from
  std::int64_t block = 0;
  std::int32_t* trouble = nullptr;
};

enum class PoolOp : std::int32_t { kMax, kAverage };
struct PoolArguments {
  std::int64_t count = 0;
  PoolOp op{};
  bool count_padding = false;
  const float* in = nullptr;
  float* out = nullptr;
  // Of each of the three spatial dimensions; unused ones have size 1.
  std::int64_t size[3] = {1, 1, 1};
  std::int64_t out_size[3] = {1, 1, 1};
  std::int64_t kernel[3] = {1, 1, 1};
  std::int64_t stride[3] = {1, 1, 1};
  std::int64_t dilation[3] = {1, 1, 1};
  std::int64_t begin[3] = {};
  std::int64_t end[3] = {};
};

// y = (x - mean) / sqrt(variance + epsilon) x scale + shift, per channel.
struct BatchNormArguments {
  std::int64_t count = 0;
  const float* in = nullptr;
  float* out = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
  const float* mean = nullptr;
  const float* variance = nullptr;
  std::int64_t channels = 0;
  std::int64_t plane = 0;
  float epsilon = 0;
  Function after;
};

// Local response normalisation across channels.
struct LrnArguments {
  std::int64_t count = 0;
  const float* in = nullptr;
  float* out = nullptr;
  std::int64_t channels = 0;
  std::int64_t plane = 0;
  std::int64_t size = 1;
  float alpha = 0;  // divided by the size already
  float beta = 0;
  float bias = 0;
};

// Adds a bias per channel and a tensor of the output's shape, either may be absent, in place; then a
// function: what a convolution ends with.
struct FinishArguments {
  std::int64_t count = 0;
  float* out = nullptr;
  const float* bias = nullptr;
  const float* addend = nullptr;
  std::int64_t channels = 1;
  std::int64_t plane = 1;
  Function after;
};

// A row is `n` elements, `inner` apart.
struct SoftmaxArguments {
  std::int64_t count = 0;
  const float* in = nullptr;
  float* out = nullptr;
  std::int64_t n = 0;
  std::int64_t inner = 1;
  bool log = false;
};

struct LayerNormArguments {
  std::int64_t count = 0;
  const float* in = nullptr;
  float* out = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;  // null: none
  float* mean = nullptr;         // per row; null: nobody asked for it, as for the next
  float* inverse = nullptr;      // of the deviation
  std::int64_t n = 0;
  float epsilon = 0;
};

enum class ReduceOp : std::int32_t { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kSumSquare, kLogSum };
struct ReduceArguments {
  std::int64_t count = 0;
  ReduceOp op{};
  const float* in = nullptr;
  float* out = nullptr;
  Box kept;  // the output's
  Strides kept_at;
  Box folded;
  Strides folded_at;
  std::int64_t n = 0;  // elements of `folded`
};

}  // namespace troupe::gpu::cuda

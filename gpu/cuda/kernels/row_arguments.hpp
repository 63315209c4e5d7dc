// What kernels are told that do a row at a time.
#pragma once

#include "gpu/cuda/kernels/arguments.hpp"

namespace troupe::gpu::cuda {

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
  float* mean = nullptr;         // per row; null when the output is absent, as for the next
  float* inverse = nullptr;      // of the deviation
  std::int64_t n = 0;
  float epsilon = 0;
};

enum class ReduceOp : std::int32_t {
  kSum,
  kMean,
  kMax,
  kMin,
  kProd,
  kL1,
  kL2,
  kSumSquare,
  kLogSum,
  kLogSumExp
};
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

// Which element of each line stands before all others: a line is `n` elements, `inner` apart.
struct ArgArguments {
  std::int64_t count = 0;
  const float* in = nullptr;
  std::int64_t* out = nullptr;
  std::int64_t n = 0;
  std::int64_t inner = 1;
  bool largest = true;
  bool last = false;  // of equal ones
};
// The first k in that order, with their values; either output may be absent.
struct TopKArguments {
  std::int64_t count = 0;
  const float* in = nullptr;
  float* values = nullptr;
  std::int64_t* indices = nullptr;
  std::int64_t n = 0;
  std::int64_t inner = 1;
  std::int64_t k = 0;
  bool largest = true;
};

}  // namespace troupe::gpu::cuda

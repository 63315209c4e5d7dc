// What kernels are told of quantised tensors: real = (stored - zero point) * scale.
#pragma once

#include "gpu/cuda/kernels/arguments.hpp"

namespace troupe::gpu::cuda {

// One scale and zero point for each channel.
struct QuantizeArguments {
  std::int64_t count = 0;
  Element from{};  // FP32 or INT32
  Element to{};
  const void* in = nullptr;
  void* out = nullptr;
  const float* scale = nullptr;
  const void* zero = nullptr;  // null: 0
  std::int64_t channels = 1;
  std::int64_t inner = 1;
};
struct DequantizeArguments {
  std::int64_t count = 0;
  Element from{};
  const void* in = nullptr;
  float* out = nullptr;
  const float* scale = nullptr;
  const void* zero = nullptr;
  std::int64_t channels = 1;
  std::int64_t inner = 1;
};
// [m,k] times [k,n] for each matrix of a batch, less the zero points (null: 0).
struct IntegerProductArguments {
  std::int64_t count = 0;
  Element type_a{};
  Element type_b{};
  const void* a = nullptr;
  const void* b = nullptr;
  const void* zero_a = nullptr;
  const void* zero_b = nullptr;
  bool zero_per_row = false;
  bool zero_per_column = false;
  std::int32_t* out = nullptr;
  std::int64_t m = 1;
  std::int64_t n = 1;
  std::int64_t k = 1;
  Box batch;
  Strides in_a;  // in matrices
  Strides in_b;
};

// The range of all of `in` as a scale and a zero point of UINT8; one row.
struct RangeArguments {
  std::int64_t count = 1;
  const float* in = nullptr;
  float* scale = nullptr;
  std::uint8_t* zero = nullptr;
  std::int64_t n = 0;
};

}  // namespace troupe::gpu::cuda

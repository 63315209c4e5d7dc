// What kernels are told whose elements are made of their neighbours, or of what their channel has.
#pragma once

#include "gpu/cuda/kernels/arguments.hpp"

namespace troupe::gpu::cuda {

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

// Weights are [in, out per group, kernel]; dimensions as in PoolArguments.
struct ConvTransposeArguments {
  std::int64_t count = 0;
  const float* in = nullptr;
  const float* weights = nullptr;
  const float* bias = nullptr;  // null: none
  float* out = nullptr;
  std::int64_t groups = 1;
  std::int64_t in_per_group = 1;
  std::int64_t out_per_group = 1;
  std::int64_t size[3] = {1, 1, 1};
  std::int64_t out_size[3] = {1, 1, 1};
  std::int64_t kernel[3] = {1, 1, 1};
  std::int64_t stride[3] = {1, 1, 1};
  std::int64_t dilation[3] = {1, 1, 1};
  std::int64_t begin[3] = {};
  Function after;
};

// One axis of [outer, from, inner] becomes `to` long; each place is made of `taps` others.
struct TapsArguments {
  std::int64_t count = 0;
  const float* in = nullptr;
  float* out = nullptr;
  const std::int64_t* index = nullptr;  // [to, taps]; -1: outside, the filler
  const float* weight = nullptr;        // [to, taps]
  std::int64_t from = 1;
  std::int64_t to = 1;
  std::int64_t inner = 1;
  std::int64_t taps = 1;
  float filler = 0;
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

}  // namespace troupe::gpu::cuda

// What kernels do for one element that is made of its neighbours: pooling, transposed convolution,
// interpolation.
#pragma once

#include "gpu/cuda/kernels/bodies.hpp"
#include "gpu/cuda/kernels/window_arguments.hpp"

namespace troupe::gpu::cuda {

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

// The taps of the input that reach this element: every place x with x * stride + tap * dilation - begin here.
TROUPE_BODY void RunConvTranspose(const ConvTransposeArguments& a, std::int64_t i) {
  std::int64_t at[3];
  std::int64_t rest = i;
  for (int d = 3; d-- > 0;) {
    at[d] = rest % a.out_size[d];
    rest /= a.out_size[d];
  }
  const std::int64_t channel = rest % (a.groups * a.out_per_group);
  const std::int64_t image = rest / (a.groups * a.out_per_group);
  const std::int64_t group = channel / a.out_per_group;
  const std::int64_t plane = a.size[0] * a.size[1] * a.size[2];
  const std::int64_t taps = a.kernel[0] * a.kernel[1] * a.kernel[2];
  float sum = a.bias == nullptr ? 0.0F : a.bias[channel];
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    std::int64_t place = 0;
    std::int64_t left = tap;
    std::int64_t k[3];
    for (int d = 3; d-- > 0; left /= a.kernel[d]) k[d] = left % a.kernel[d];
    bool reaches = true;
    for (int d = 0; d < 3; ++d) {
      const std::int64_t from = at[d] + a.begin[d] - k[d] * a.dilation[d];
      reaches = reaches && from >= 0 && from % a.stride[d] == 0 && from / a.stride[d] < a.size[d];
      place = place * a.size[d] + from / a.stride[d];
    }
    if (!reaches) continue;
    const std::int64_t first = group * a.in_per_group;
    for (std::int64_t c = first; c < first + a.in_per_group; ++c) {
      sum += a.in[(image * a.groups * a.in_per_group + c) * plane + place] *
             a.weights[(c * a.out_per_group + channel % a.out_per_group) * taps + tap];
    }
  }
  a.out[i] = Apply(a.after, sum);
}

TROUPE_BODY void RunTaps(const TapsArguments& a, std::int64_t i) {
  const std::int64_t inner = i % a.inner;
  const std::int64_t place = i / a.inner % a.to;
  const std::int64_t outer = i / a.inner / a.to;
  float sum = 0;
  for (std::int64_t t = place * a.taps; t < (place + 1) * a.taps; ++t) {
    if (a.index[t] < 0) {
      sum = a.filler;
      break;
    }
    sum += a.weight[t] * a.in[(outer * a.from + a.index[t]) * a.inner + inner];
  }
  a.out[i] = sum;
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

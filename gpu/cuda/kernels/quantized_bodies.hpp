// What kernels do for one element of a quantised tensor: real = (stored - zero point) * scale.
#pragma once

#include "gpu/cuda/kernels/numbers.hpp"
#include "gpu/cuda/kernels/quantized_arguments.hpp"

namespace troupe::gpu::cuda {

// Halves to even, then the zero point, then saturated; NaN becomes the zero point.
TROUPE_BODY std::int64_t QuantizedOf(Element type, float scaled, std::int64_t zero) {
  const double low = type == Element::kUint8 ? 0 : -128;
  const double value =
      (scaled != scaled ? 0.0 : rint(static_cast<double>(scaled))) + static_cast<double>(zero);
  return static_cast<std::int64_t>(value < low ? low : (value > low + 255 ? low + 255 : value));
}

TROUPE_BODY void RunQuantize(const QuantizeArguments& a, std::int64_t i) {
  const std::int64_t c = i / a.inner % a.channels;
  const auto x =
      IsReal(a.from) ? static_cast<const float*>(a.in)[i] : static_cast<float>(LoadInteger(a.from, a.in, i));
  const std::int64_t zero = a.zero == nullptr ? 0 : LoadInteger(a.to, a.zero, c);
  StoreInteger(a.to, a.out, i, QuantizedOf(a.to, x / a.scale[c], zero));
}

TROUPE_BODY void RunDequantize(const DequantizeArguments& a, std::int64_t i) {
  const std::int64_t c = i / a.inner % a.channels;
  const std::int64_t zero = a.zero == nullptr ? 0 : LoadInteger(a.from, a.zero, c);
  a.out[i] = static_cast<float>(LoadInteger(a.from, a.in, i) - zero) * a.scale[c];
}

// One element of a product of matrices of bytes, in INT32.
TROUPE_BODY void RunIntegerProduct(const IntegerProductArguments& a, std::int64_t i) {
  const std::int64_t row = i / a.n % a.m;
  const std::int64_t column = i % a.n;
  const std::int64_t matrix = i / a.n / a.m;
  const std::int64_t x = OffsetOf(a.batch, a.in_a, matrix) * a.m * a.k + row * a.k;
  const std::int64_t y = OffsetOf(a.batch, a.in_b, matrix) * a.k * a.n + column;
  const std::int64_t zero_a =
      a.zero_a == nullptr ? 0 : LoadInteger(a.type_a, a.zero_a, a.zero_per_row ? row : 0);
  const std::int64_t zero_b =
      a.zero_b == nullptr ? 0 : LoadInteger(a.type_b, a.zero_b, a.zero_per_column ? column : 0);
  std::int64_t sum = 0;
  for (std::int64_t k = 0; k < a.k; ++k)
    sum += (LoadInteger(a.type_a, a.a, x + k) - zero_a) * (LoadInteger(a.type_b, a.b, y + k * a.n) - zero_b);
  a.out[i] = static_cast<std::int32_t>(sum);
}

}  // namespace troupe::gpu::cuda

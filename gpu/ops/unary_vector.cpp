// Unary functions on FP32 that models spend time in, as vector code. Compiled with its own flags
// (CMakeLists.txt).
#include <algorithm>
#include <cmath>
#include <utility>

#include "gpu/ops/activation.hpp"
#include "gpu/ops/vector_math.hpp"

namespace troupe::gpu {
namespace {

struct Plain {
  TROUPE_INLINE explicit Plain(const void*) {}
};
struct WithParameters {
  TROUPE_INLINE explicit WithParameters(const void* p)
      : a(static_cast<float>(static_cast<const UnaryParameters*>(p)->a)),
        b(static_cast<float>(static_cast<const UnaryParameters*>(p)->b)) {}
  float a;
  float b;
};

#define TROUPE_UNARY(Name, Base, expression)                             \
  struct Name : Base {                                                   \
    using Base::Base;                                                    \
    TROUPE_INLINE float operator()(float x) const { return expression; } \
  };

// A comparison that is false for NaN must choose x, so that NaN stays NaN.
TROUPE_UNARY(Relu, Plain, x < 0.0F ? 0.0F : x)
TROUPE_UNARY(Abs, Plain, std::fabs(x))
TROUPE_UNARY(Neg, Plain, -x)
TROUPE_UNARY(Sqrt, Plain, __builtin_sqrtf(x))
TROUPE_UNARY(Reciprocal, Plain, 1.0F / x)
TROUPE_UNARY(Exp, Plain, FastExp(x))
TROUPE_UNARY(Erf, Plain, FastErf(x))
TROUPE_UNARY(Gelu, Plain, FastGelu(x))
TROUPE_UNARY(GeluTanh, Plain,
             0.5F * x * (1.0F + FastTanh(0.79788456080286536F * (x + 0.044715F * x * x * x))))
TROUPE_UNARY(Sigmoid, Plain, FastSigmoid(x))
TROUPE_UNARY(QuickGelu, WithParameters, x* FastSigmoid(a* x))
TROUPE_UNARY(Tanh, Plain, FastTanh(x))
TROUPE_UNARY(Softsign, Plain, x / (1.0F + std::fabs(x)))
TROUPE_UNARY(Clip, WithParameters, x < a ? a : (x > b ? b : x))
TROUPE_UNARY(LeakyRelu, WithParameters, x < 0.0F ? a * x : x)
TROUPE_UNARY(ThresholdedRelu, WithParameters, x > a ? x : 0.0F)

TROUPE_INLINE float HardSigmoidOf(float x, float a, float b) {
  const float y = a * x + b;
  return y < 0.0F ? 0.0F : (y > 1.0F ? 1.0F : y);
}
TROUPE_UNARY(HardSigmoid, WithParameters, HardSigmoidOf(x, a, b))
// x * tanh(log(1 + e)) for e = e^x, which is 1 in float beyond 20.
TROUPE_INLINE float MishOf(float x) {
  const float e = FastExp(x > 20.0F ? 20.0F : x);
  const float n = e * (e + 2.0F);
  return x * (n / (n + 2.0F));
}
TROUPE_UNARY(Mish, Plain, MishOf(x))
TROUPE_UNARY(HardSwish, Plain, x* HardSigmoidOf(x, 1.0F / 6.0F, 0.5F))
#undef TROUPE_UNARY

template <class F>
RowFunction Best() {
  return BestRow<UnaryBody<float, F>>();
}

}  // namespace

RowFunction FindVectorRow(std::string_view op) {
  static constexpr std::pair<std::string_view, RowFunction (*)()> kRows[] = {
      {"Relu", &Best<Relu>},
      {"Abs", &Best<Abs>},
      {"Neg", &Best<Neg>},
      {"Sqrt", &Best<Sqrt>},
      {"Reciprocal", &Best<Reciprocal>},
      {"Exp", &Best<Exp>},
      {"Erf", &Best<Erf>},
      {"Gelu", &Best<Gelu>},
      {"GeluTanh", &Best<GeluTanh>},
      {"Mish", &Best<Mish>},
      {"Sigmoid", &Best<Sigmoid>},
      {"com.microsoft.QuickGelu", &Best<QuickGelu>},
      {"Tanh", &Best<Tanh>},
      {"Softsign", &Best<Softsign>},
      {"Clip", &Best<Clip>},
      {"LeakyRelu", &Best<LeakyRelu>},
      {"ThresholdedRelu", &Best<ThresholdedRelu>},
      {"HardSigmoid", &Best<HardSigmoid>},
      {"HardSwish", &Best<HardSwish>},
  };
  for (const auto& [name, row] : kRows) {
    if (name == op) return row();
  }
  return nullptr;
}

}  // namespace troupe::gpu

// Unary functions through the C library, for one floating type; included once per type (see unary_float32.cpp).
namespace troupe::gpu {
namespace {

using T = TROUPE_UNARY_TYPE;

template <class F>
void ScalarRow(const Row& row, F f) {
  const T* in = reinterpret_cast<const T*>(row.in[0]);
  T* out = reinterpret_cast<T*>(row.out);
  for (std::int64_t i = 0; i < row.n; ++i) out[i] = f(in[i]);
}

struct Entry {
  std::string_view name;
  RowFunction row;
};

#define TROUPE_ROW(name, expression)                                            \
  Entry {                                                                       \
    name, [](const Row& row) {                                                  \
      [[maybe_unused]] UnaryParameters p;                                       \
      if (row.parameters) p = *static_cast<const UnaryParameters*>(row.parameters); \
      [[maybe_unused]] const T a = static_cast<T>(p.a), b = static_cast<T>(p.b); \
      ScalarRow(row, [=](T x) -> T { return expression; });                     \
    }                                                                           \
  }

const Entry kEntries[] = {
    TROUPE_ROW("Abs", std::abs(x)),
    TROUPE_ROW("Neg", -x),
    TROUPE_ROW("Sqrt", std::sqrt(x)),
    TROUPE_ROW("Reciprocal", T(1) / x),
    TROUPE_ROW("Exp", std::exp(x)),
    TROUPE_ROW("Log", std::log(x)),
    TROUPE_ROW("Erf", std::erf(x)),
    TROUPE_ROW("Gelu", x / 2 * (1 + std::erf(x * T(0.70710678118654752)))),
    TROUPE_ROW("GeluTanh",
               x / 2 * (1 + std::tanh(T(0.79788456080286536) * (x + T(0.044715) * x * x * x)))),
    TROUPE_ROW("com.microsoft.QuickGelu", x / (T(1) + std::exp(-a * x))),
    TROUPE_ROW("Mish", x * std::tanh(x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)))),
    TROUPE_ROW("Sigmoid", T(1) / (T(1) + std::exp(-x))),
    TROUPE_ROW("Tanh", std::tanh(x)),
    TROUPE_ROW("Sin", std::sin(x)),
    TROUPE_ROW("Cos", std::cos(x)),
    TROUPE_ROW("Tan", std::tan(x)),
    TROUPE_ROW("Asin", std::asin(x)),
    TROUPE_ROW("Acos", std::acos(x)),
    TROUPE_ROW("Atan", std::atan(x)),
    TROUPE_ROW("Sinh", std::sinh(x)),
    TROUPE_ROW("Cosh", std::cosh(x)),
    TROUPE_ROW("Asinh", std::asinh(x)),
    TROUPE_ROW("Acosh", std::acosh(x)),
    TROUPE_ROW("Atanh", std::atanh(x)),
    TROUPE_ROW("Floor", std::floor(x)),
    TROUPE_ROW("Ceil", std::ceil(x)),
    TROUPE_ROW("Round", std::nearbyint(x)),  // halves to even, as the default rounding mode does
    TROUPE_ROW("Sign", T((x > 0) - (x < 0))),
    TROUPE_ROW("Relu", x < 0 ? T(0) : x),
    TROUPE_ROW("Softplus", x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x))),
    TROUPE_ROW("Softsign", x / (T(1) + std::abs(x))),
    TROUPE_ROW("LeakyRelu", x < 0 ? a * x : x),
    TROUPE_ROW("ThresholdedRelu", x > a ? x : T(0)),
    TROUPE_ROW("Elu", x < 0 ? a * std::expm1(x) : x),
    TROUPE_ROW("Celu", x < 0 ? a * std::expm1(x / a) : x),
    TROUPE_ROW("Selu", x > 0 ? b * x : b * a * std::expm1(x)),
    TROUPE_ROW("HardSigmoid", std::clamp(a * x + b, T(0), T(1))),
    TROUPE_ROW("HardSwish", x * std::clamp(x / 6 + T(0.5), T(0), T(1))),
    TROUPE_ROW("Clip", x < a ? a : (x > b ? b : x)),
    TROUPE_ROW("Shrink", x < -b ? x + a : (x > b ? x - a : T(0))),
};
#undef TROUPE_ROW

RowFunction Find(std::string_view op) {
  for (const Entry& entry : kEntries) {
    if (entry.name == op) return entry.row;
  }
  return nullptr;
}

}  // namespace
}  // namespace troupe::gpu

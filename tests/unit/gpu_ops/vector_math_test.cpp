// The vector functions against the C library, over the range where models use them and far beyond it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/gpu_ops/op_runner.hpp"

namespace troupe::gpu {
namespace {

std::vector<float> Sweep() {
  std::vector<float> values;
  for (float x = -120.0F; x <= 120.0F; x += 0.01171875F) values.push_back(x);
  for (float x = 1e-30F; x < 1e30F; x *= 3.7F) {
    values.push_back(x);
    values.push_back(-x);
  }
  values.push_back(0.0F);
  values.push_back(std::numeric_limits<float>::infinity());
  values.push_back(-std::numeric_limits<float>::infinity());
  return values;
}

template <class F>
void Check(const char* op, F reference, double relative, double absolute) {
  const std::vector<float> x = Sweep();
  const auto out = RunOp(MakeStep(op), {Floats({static_cast<std::int64_t>(x.size())}, x)});
  ASSERT_TRUE(out.ok()) << out.status();
  const auto y = (*out)[0].As<float>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = reference(static_cast<double>(x[i]));
    const auto narrow = static_cast<float>(expected);
    if (y[i] == narrow || (std::isnan(y[i]) && std::isnan(narrow))) continue;
    ASSERT_LE(std::abs(static_cast<double>(y[i]) - expected), absolute + relative * std::abs(expected))
        << op << "(" << x[i] << ") = " << y[i];
  }
}

TEST(VectorMath, Exp) {
  Check(
      "Exp", [](double x) { return std::exp(x); }, 3e-7, 1e-44);
}
TEST(VectorMath, Erf) {
  Check(
      "Erf", [](double x) { return std::erf(x); }, 5e-6, 1e-30);
}
TEST(VectorMath, Tanh) {
  Check(
      "Tanh", [](double x) { return std::tanh(x); }, 1e-6, 1e-30);
}
TEST(VectorMath, Sigmoid) {
  Check(
      "Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, 1e-6, 1e-37);
}
TEST(VectorMath, Gelu) {
  Check(
      "Gelu",
      [](double x) {
        return std::isinf(x) && x < 0 ? std::nan("") : 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
      },
      1e-5, 2e-5);
}

}  // namespace
}  // namespace troupe::gpu

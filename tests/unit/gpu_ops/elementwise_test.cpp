#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "absl/strings/match.h"
#include "base/random.hpp"
#include "gpu/ops/convert.hpp"
#include "tests/unit/gpu_ops/op_runner.hpp"

namespace troupe::gpu {
namespace {

// The element of `shape` that element number `i` of the broadcast `out` reads, computed in the slow and
// obvious way.
std::int64_t NaiveIndex(const Shape& shape, const Shape& out, std::int64_t i) {
  std::int64_t index = 0;
  std::int64_t stride = 1;
  for (std::size_t d = 0; d < out.size(); ++d) {
    const std::int64_t at = i % out[out.size() - 1 - d];
    i /= out[out.size() - 1 - d];
    if (d < shape.size()) {
      const std::int64_t dim = shape[shape.size() - 1 - d];
      index += (dim == 1 ? 0 : at) * stride;
      stride *= dim;
    }
  }
  return index;
}

TEST(Elementwise, BroadcastsLikeTheObviousLoop) {
  const std::vector<std::pair<Shape, Shape>> cases = {
      {{2, 3, 4}, {2, 3, 4}}, {{2, 3, 4}, {4}},       {{2, 3, 4}, {3, 1}},
      {{2, 3, 4}, {2, 1, 1}}, {{2, 3, 4}, {2, 1, 4}}, {{1, 3, 1}, {2, 1, 4}},
      {{}, {2, 3}},           {{2, 3}, {}},           {{1}, {1}},
      {{0, 3}, {1, 3}},       {{5, 1, 7}, {1, 6, 1}}, {{2, 1, 3, 1, 2}, {1, 4, 1, 5, 1}},
      {{300, 200}, {200}},    {{70000}, {1}},         {{1}, {70000}}};
  for (const auto& [a, b] : cases) {
    const Shape shape = *BroadcastShapes(a, b);
    const TestTensor x = Counting(a);
    const TestTensor y = Counting(b);
    const auto out = RunOp(MakeStep("Sub"), {x, y});
    ASSERT_TRUE(out.ok()) << out.status();
    ASSERT_EQ((*out)[0].shape, shape);
    const auto values = (*out)[0].As<float>();
    const auto xs = x.As<float>();
    const auto ys = y.As<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      ASSERT_EQ(values[i], xs[NaiveIndex(a, shape, at)] - ys[NaiveIndex(b, shape, at)])
          << FormatShape(a) << " - " << FormatShape(b) << " at " << i;
    }
  }
}

TEST(Elementwise, WhereBroadcastsThreeWays) {
  const TestTensor choose = Tensor<std::uint8_t>(proto::BOOL, {2, 1}, {1, 0});
  const auto out = RunOp(MakeStep("Where"), {choose, Counting({1, 3}), Floats({}, {-1})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].As<float>(), (std::vector<float>{1, 2, 3, -1, -1, -1}));
}

TEST(Elementwise, IntegerDivisionIsDefinedForEveryOperand) {
  constexpr std::int32_t kLow = std::numeric_limits<std::int32_t>::min();
  const auto ints = [](const std::vector<std::int32_t>& v) {
    return Tensor<std::int32_t>(proto::INT32, {static_cast<std::int64_t>(v.size())}, v);
  };
  const auto quotient = RunOp(MakeStep("Div"), {ints({7, -7, 1, kLow}), ints({2, 2, 0, -1})});
  EXPECT_EQ((*quotient)[0].As<std::int32_t>(), (std::vector<std::int32_t>{3, -3, 0, kLow}));
  const auto rest = RunOp(MakeStep("Mod"), {ints({7, -7, 1, kLow}), ints({2, 2, 0, -1})});
  EXPECT_EQ((*rest)[0].As<std::int32_t>(), (std::vector<std::int32_t>{1, 1, 0, 0}));
  const auto wrapped = RunOp(MakeStep("Add"), {ints({std::numeric_limits<std::int32_t>::max()}), ints({1})});
  EXPECT_EQ((*wrapped)[0].As<std::int32_t>(), (std::vector<std::int32_t>{kLow}));
}

TEST(Elementwise, ShortIntegersWrapInTheirOwnType) {
  const TestTensor a = Tensor<std::uint8_t>(proto::UINT8, {2}, {250, 3});
  const TestTensor b = Tensor<std::uint8_t>(proto::UINT8, {2}, {10, 5});
  const auto sum = RunOp(MakeStep("Add"), {a, b});
  EXPECT_EQ((*sum)[0].As<std::uint8_t>(), (std::vector<std::uint8_t>{4, 8}));
  const auto difference = RunOp(MakeStep("Sub"), {a, b});
  EXPECT_EQ((*difference)[0].As<std::uint8_t>(), (std::vector<std::uint8_t>{240, 254}));
}

TEST(Elementwise, ShiftsBeyondTheWidthGiveZero) {
  proto::Step step = MakeStep("BitShift");
  SetText(step, "direction", "RIGHT");
  const TestTensor x = Tensor<std::uint64_t>(proto::UINT64, {2}, {~0ULL, ~0ULL});
  const TestTensor by = Tensor<std::uint64_t>(proto::UINT64, {2}, {63, 64});
  EXPECT_EQ((*RunOp(step, {x, by}))[0].As<std::uint64_t>(), (std::vector<std::uint64_t>{1, 0}));
}

TEST(Elementwise, AddAppliesTheActivationThatWasFusedIntoIt) {
  proto::Step step = MakeStep("Add");
  step.set_activation("Clip");
  step.set_activation_alpha(0);
  step.set_activation_beta(6);
  const auto out = RunOp(step, {Floats({3}, {-5, 2, 9}), Floats({1}, {1})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].As<float>(), (std::vector<float>{0, 3, 6}));
  step.set_activation("Unheard");
  EXPECT_TRUE(
      absl::StrContains(RunOp(step, {Floats({1}, {1}), Floats({1}, {1})}).status().message(), "Unheard"));
}

TEST(Elementwise, NaNStaysNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* op : {"Relu", "Exp", "Tanh", "Sigmoid", "Erf", "Abs", "HardSwish", "Softplus"}) {
    const auto out = RunOp(MakeStep(op), {Floats({17}, std::vector<float>(17, nan))});
    ASSERT_TRUE(out.ok()) << out.status();
    for (float y : (*out)[0].As<float>()) EXPECT_TRUE(std::isnan(y)) << op;
  }
  EXPECT_TRUE(
      std::isnan((*RunOp(MakeStep("Max"), {Floats({1}, {nan}), Floats({1}, {1})}))[0].As<float>()[0]));
  EXPECT_TRUE(
      std::isnan((*RunOp(MakeStep("Min"), {Floats({1}, {1}), Floats({1}, {nan})}))[0].As<float>()[0]));
}

TEST(Convert, EveryHalfSurvivesTheWayThroughFloat) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
      EXPECT_TRUE(std::isnan(BfloatToFloat(FloatToBfloat(value))));
    } else {
      ASSERT_EQ(FloatToHalf(value), half);
    }
    const float wide = BfloatToFloat(half);
    if (!std::isnan(wide)) {
      ASSERT_EQ(FloatToBfloat(wide), half);
    }
  }
}

TEST(Convert, HalvesRoundToNearestEven) {
  EXPECT_EQ(FloatToHalf(2049.0F), FloatToHalf(2048.0F));  // halfway between two: the even one
  EXPECT_EQ(FloatToHalf(2051.0F), FloatToHalf(2052.0F));
  EXPECT_EQ(FloatToHalf(65520.0F), 0x7c00);  // rounds to infinity
  EXPECT_EQ(FloatToHalf(65519.0F), 0x7bff);
  EXPECT_EQ(FloatToHalf(0x1p-25F), 0);  // halfway to the smallest: 0 is even
  EXPECT_EQ(FloatToHalf(0x1.8p-25F), 1);
}

TEST(Convert, FloatsSaturateIntoIntegers) {
  proto::Step step = MakeStep("Cast");
  SetInt(step, "to", 3);  // INT8
  const float inf = std::numeric_limits<float>::infinity();
  const auto out = RunOp(step, {Floats({6}, {1e9F, -1e9F, inf, -inf, std::nanf(""), -3.9F})});
  EXPECT_EQ((*out)[0].As<std::int8_t>(), (std::vector<std::int8_t>{127, -128, 127, -128, 0, -3}));
}

// In FP16 a sum of ones stays at 2048, in BF16 at 256.
TEST(HalfPrecision, ConvolutionsSumInFp32) {
  constexpr std::int64_t kChannels = 4096;
  for (const auto& [type, one, sum] : {std::tuple(proto::FP16, FloatToHalf(1), FloatToHalf(kChannels)),
                                       std::tuple(proto::BF16, FloatToBfloat(1), FloatToBfloat(kChannels))}) {
    const std::vector<std::uint16_t> ones(kChannels, one);
    for (const char* const op : {"Conv", "ConvTranspose"}) {
      const Shape weights = std::string(op) == "Conv" ? Shape{1, kChannels, 1, 1} : Shape{kChannels, 1, 1, 1};
      const auto out = RunOp(MakeStep(op), {Tensor<std::uint16_t>(type, {1, kChannels, 1, 1}, ones),
                                            Tensor<std::uint16_t>(type, weights, ones)});
      ASSERT_TRUE(out.ok()) << out.status();
      EXPECT_EQ((*out)[0].type, type);
      EXPECT_EQ((*out)[0].As<std::uint16_t>(), std::vector<std::uint16_t>{sum}) << op;
    }
  }
}

// 2^24 + 1 is no FP32.
TEST(DoublePrecision, ProductsKeepIt) {
  const std::vector<double> row = {16777216, 1};
  for (const char* const op : {"MatMul", "Gemm"}) {
    const auto out = RunOp(MakeStep(op), {Tensor<double>(proto::FP64, {1, 2}, row),
                                          Tensor<double>(proto::FP64, {2, 1}, {1, 1})});
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ((*out)[0].As<double>(), std::vector<double>{16777217}) << op;
  }
}

// A sum of no terms is 0.
TEST(Products, WithAnInnerDimensionOf0AreZeros) {
  for (const auto type : {proto::FP32, proto::FP64, proto::FP16}) {
    const auto none = [&](Shape shape) { return TestTensor{type, std::move(shape), {}, false}; };
    for (const char* const op : {"MatMul", "Gemm", "com.microsoft.FusedMatMul"}) {
      const auto out = RunOp(MakeStep(op), {none({2, 0}), none({0, 3})});
      ASSERT_TRUE(out.ok()) << op << out.status();
      EXPECT_EQ((*out)[0].shape, (Shape{2, 3})) << op;
      EXPECT_THAT((*out)[0].data, testing::Each(std::byte{0})) << op;
    }
    const auto many = RunOp(MakeStep("MatMul"), {none({2, 1, 4, 0}), none({3, 0, 5})});
    ASSERT_TRUE(many.ok()) << many.status();
    EXPECT_EQ((*many)[0].shape, (Shape{2, 3, 4, 5}));
    EXPECT_THAT((*many)[0].data, testing::Each(std::byte{0}));
  }
  const auto vectors = RunOp(MakeStep("MatMul"), {Floats({0}, {}), Floats({0}, {})});
  ASSERT_TRUE(vectors.ok()) << vectors.status();
  EXPECT_EQ((*vectors)[0].As<float>(), std::vector<float>{0});
}

TEST(Products, WithAnInnerDimensionOf0KeepWhatIsAdded) {
  auto step = MakeStep("Gemm");
  const auto a = Floats({0, 2}, {});
  const auto b = Floats({3, 0}, {});
  SetInt(step, "transA", 1);
  SetInt(step, "transB", 1);
  const auto bias = RunOp(step, {a, b, Floats({3}, {1, 2, 3})});
  ASSERT_TRUE(bias.ok()) << bias.status();
  EXPECT_EQ((*bias)[0].As<float>(), (std::vector<float>{1, 2, 3, 1, 2, 3}));
  SetFloat(step, "beta", 2);
  const auto scaled = RunOp(step, {a, b, Floats({2, 1}, {1, 2})});
  ASSERT_TRUE(scaled.ok()) << scaled.status();
  EXPECT_EQ((*scaled)[0].As<float>(), (std::vector<float>{2, 2, 2, 4, 4, 4}));
}

}  // namespace
}  // namespace troupe::gpu

// What the GPU's plans do beyond the contract: in what they compute.
#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/gpu_cuda/fake_cuda.hpp"
#include "tests/unit/gpu_cuda/gpu_plan.hpp"
#include "tests/unit/gpu_engine/model_builder.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::Pointwise;

constexpr float kNine = 1 + 0x1p-9F;     // fits TF32 and FP16, not BF16
constexpr float kTwelve = 1 + 0x1p-12F;  // fits FP32 alone
constexpr float kLarge = 0x1p17F;        // beyond FP16
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class CudaPrecision : public testing::Test {
 protected:
  void SetUp() override {
    opened_ = cuda::Open(SmallOptions());
    ASSERT_NE(opened_.device, nullptr) << opened_.why;
  }
  std::vector<float> Run(ModelBuilder& builder, proto::Precision precision, const std::vector<float>& in) {
    auto plan =
        GpuPlan::Make(*opened_.device, builder.model(), builder.weights(), builder.input_specs(), precision);
    if (!plan.ok()) {
      ADD_FAILURE() << plan.status();
      return {};
    }
    const auto result = RunPlan(**plan, builder.weights(), {std::as_bytes(std::span(in))});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->As<float>(0) : std::vector<float>();
  }
  // A real GPU may compute products as small as these in more than was asked for.
  void Expect(const std::vector<float>& got, const std::vector<float>& rounded, float unit) {
    if (!RealDriver()) {
      EXPECT_THAT(got, Pointwise(testing::FloatEq(), rounded));
      return;
    }
    ASSERT_EQ(got.size(), rounded.size());
    EXPECT_NEAR(got[0], kNine, unit);
    EXPECT_NEAR(got[1], kTwelve, unit);
  }
  CudaOpened opened_;
};

TEST_F(CudaPrecision, ProductsRoundTheirOperandsToWhatTheFunctionAllows) {
  for (const char* const op : {"MatMul", "Gemm"}) {
    ModelBuilder builder;
    builder.Step(op, {builder.Input("x", {3, 1}), builder.Floats({1, 1}, {1})}, "y");
    builder.Output("y", {3, 1});
    const std::vector<float> in = {kNine, kTwelve, kLarge};
    Expect(Run(builder, proto::PRECISION_FP32, in), {kNine, kTwelve, kLarge}, 0);
    Expect(Run(builder, proto::PRECISION_TF32, in), {kNine, 1, kLarge}, 0x1p-10F);
    Expect(Run(builder, proto::PRECISION_BF16, in), {1, 1, kLarge}, 0x1p-7F);
    Expect(Run(builder, proto::PRECISION_FP16, in), {kNine, 1, kInfinity}, 0x1p-10F);
  }
}

// cuDNN has no BF16 for tensors in FP32: TF32, which rounds less, stands in for it.
TEST_F(CudaPrecision, ConvolutionsRoundNoMoreThanTheFunctionAllows) {
  ModelBuilder builder;
  builder.Step("Conv", {builder.Input("x", {1, 1, 1, 3}), builder.Floats({1, 1, 1, 1}, {1})}, "y");
  builder.Output("y", {1, 1, 1, 3});
  const std::vector<float> in = {kNine, kTwelve, kLarge};
  Expect(Run(builder, proto::PRECISION_FP32, in), {kNine, kTwelve, kLarge}, 0);
  Expect(Run(builder, proto::PRECISION_TF32, in), {kNine, 1, kLarge}, 0x1p-10F);
  Expect(Run(builder, proto::PRECISION_BF16, in), {kNine, 1, kLarge}, 0x1p-7F);
  Expect(Run(builder, proto::PRECISION_FP16, in), {kNine, 1, kInfinity}, 0x1p-10F);
}

// Storage, sums and all other arithmetic are FP32.
TEST_F(CudaPrecision, WhatIsNoProductStaysFp32) {
  ModelBuilder builder;
  builder.Step("Add", {builder.Input("x", {2}), builder.Floats({2}, {0, 0})}, "y");
  builder.Output("y", {2});
  EXPECT_THAT(Run(builder, proto::PRECISION_FP16, {kTwelve, kLarge}), ElementsAre(kTwelve, kLarge));
}

}  // namespace
}  // namespace troupe::gpu::test

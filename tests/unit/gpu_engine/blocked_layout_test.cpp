// A convolution leaves its channels in blocks, and the steps behind it keep that layout. A last block that is not full is padded.
// What such steps compute is compared with loops.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>

#include "tests/unit/gpu_engine/model_builder.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu {
namespace {

struct Op {
  const char* name;
  float (*of)(float a, float b);
};
constexpr Op kBinary[] = {{"Add", [](float a, float b) { return a + b; }},
                          {"Sub", [](float a, float b) { return a - b; }},
                          {"Mul", [](float a, float b) { return a * b; }},
                          {"Div", [](float a, float b) { return a / b; }},
                          {"Sum", [](float a, float b) { return a + b; }}};
struct After {
  const char* name;
  float (*of)(float x);
};
constexpr After kAfter[] = {{"", [](float x) { return x; }},
                            {"Relu", [](float x) { return x > 0 ? x : 0; }},
                            {"LeakyRelu", [](float x) { return x > 0 ? x : 0.1F * x; }},
                            {"Clip", [](float x) { return std::fmin(std::fmax(x, 0.1F), 0.5F); }},
                            {"Sigmoid", [](float x) { return 1 / (1 + std::exp(-x)); }},
                            {"Tanh", [](float x) { return std::tanh(x); }}};

class BlockedLayout : public testing::TestWithParam<std::int64_t> {};

// y = after(op(convolution(x), z)), and with `third` the sum of three.
void Compare(std::int64_t channels, std::int64_t batch, const char* convolution, const Op& op,
             const After& after, bool third) {
  SCOPED_TRACE(std::string(convolution) + " " + op.name + " " + after.name + ", batch " +
               std::to_string(batch));
  ModelBuilder builder;
  const Shape shape = {batch, channels, 3, 5};
  const auto x = builder.RandomValues(shape);
  auto z = builder.RandomValues(shape);
  for (float& value : z) value += value < 0 ? -0.5F : 0.5F;  // no division by almost nothing
  const auto w = builder.RandomValues({channels, channels, 1, 1});
  builder.Input("x", shape);
  builder.Input("z", shape);
  builder.Step(convolution, {"x", builder.Floats({channels, channels, 1, 1}, w)}, "c");
  auto& step = third ? builder.Step(op.name, {"c", "z", "x"}, "y") : builder.Step(op.name, {"c", "z"}, "y");
  step.set_activation(after.name);
  step.set_activation_alpha(0.1F);
  step.set_activation_beta(0.5F);
  builder.Output("y");
  const auto packed = PackModel(builder.model(), builder.weights(), builder.input_specs());
  ASSERT_TRUE(packed.ok()) << packed.status();
  const auto plan = Plan::Build(packed->model, packed->weights, builder.input_specs(), 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto result =
      RunPlan(**plan, packed->weights, {std::as_bytes(std::span(x)), std::as_bytes(std::span(z))});
  ASSERT_TRUE(result.ok()) << result.status();
  const auto values = result->As<float>(0);
  ASSERT_EQ(values.size(), x.size());
  const bool transposed = std::string(convolution) == "ConvTranspose";
  constexpr std::int64_t kPlaces = 15;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t image = at / (channels * kPlaces), channel = at / kPlaces % channels,
                       place = at % kPlaces;
    float sum = 0;
    for (std::int64_t c = 0; c < channels; ++c)
      sum += x[static_cast<std::size_t>((image * channels + c) * kPlaces + place)] *
             w[static_cast<std::size_t>(transposed ? c * channels + channel : channel * channels + c)];
    const float expected = after.of(op.of(sum, z[i]) + (third ? x[i] : 0));
    ASSERT_NEAR(values[i], expected, 1e-4 + 1e-4 * std::abs(expected))
        << "element " << i << ", channel " << channel;
  }
}

TEST_P(BlockedLayout, StepsBehindAConvolutionComputeTheDefinition) {
  for (const char* convolution : {"Conv", "ConvTranspose"})
    for (const std::int64_t batch : {1, 3})
      for (const After& after : kAfter) {
        for (const Op& op : kBinary) Compare(GetParam(), batch, convolution, op, after, false);
        Compare(GetParam(), batch, convolution, kBinary[4], after, true);
      }
}

INSTANTIATE_TEST_SUITE_P(Channels, BlockedLayout, testing::Values(3, 5, 8, 16, 20, 33));

}  // namespace
}  // namespace troupe::gpu

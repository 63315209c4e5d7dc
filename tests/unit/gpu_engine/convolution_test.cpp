// Conv and ConvTranspose against loops, on row-major and on packed weights.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/unit/gpu_engine/model_builder.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu {
namespace {

// A two-dimensional convolution (one spatial dimension is one of height 1).
struct Case {
  const char* name;
  std::int64_t batch, in, out, groups, height, width, kernel_h, kernel_w;
  std::array<std::int64_t, 4> pads{0, 0, 0, 0};
  std::int64_t stride = 1, dilation = 1;
  bool bias = true;
  const char* activation = "";
  bool transposed = false;
};

float Activate(const std::string& name, float x) {
  if (name == "Relu") return std::max(x, 0.0F);
  if (name == "LeakyRelu") return x > 0 ? x : 0.1F * x;
  if (name == "Clip") return std::min(std::max(x, -0.5F), 0.5F);
  if (name == "Sigmoid") return 1 / (1 + std::exp(-x));
  if (name == "Tanh") return std::tanh(x);
  if (name == "com.microsoft.QuickGelu") return x / (1 + std::exp(-0.1F * x));
  if (name == "HardSwish") return x * std::min(std::max(x / 6 + 0.5F, 0.0F), 1.0F);
  return x;
}

std::vector<float> Expected(const Case& c, const std::vector<float>& x, const std::vector<float>& w,
                            const std::vector<float>& b, std::int64_t oh, std::int64_t ow) {
  const std::int64_t ig = c.in / c.groups, og = c.out / c.groups;
  std::vector<float> y(static_cast<std::size_t>(c.batch * c.out * oh * ow));
  const auto at = [](auto... v) { return static_cast<std::size_t>((v, ...)); };
  for (std::int64_t n = 0; n < c.batch; ++n)
    for (std::int64_t o = 0; o < c.out; ++o)
      for (std::int64_t i = 0; i < oh; ++i)
        for (std::int64_t j = 0; j < ow; ++j) {
          double sum = c.bias ? b[at(o)] : 0;
          const std::int64_t g = o / og;
          for (std::int64_t k = 0; k < ig; ++k)
            for (std::int64_t p = 0; p < c.kernel_h; ++p)
              for (std::int64_t q = 0; q < c.kernel_w; ++q) {
                std::int64_t yy = i * c.stride - c.pads[0] + p * c.dilation,
                             xx = j * c.stride - c.pads[1] + q * c.dilation;
                std::int64_t weight = ((o * ig + k) * c.kernel_h + p) * c.kernel_w + q;
                if (c.transposed) {
                  yy = i + c.pads[0] - p * c.dilation;
                  xx = j + c.pads[1] - q * c.dilation;
                  if (yy < 0 || xx < 0 || yy % c.stride != 0 || xx % c.stride != 0) continue;
                  yy /= c.stride;
                  xx /= c.stride;
                  weight = (((g * ig + k) * og + o % og) * c.kernel_h + p) * c.kernel_w + q;
                }
                if (yy < 0 || yy >= c.height || xx < 0 || xx >= c.width) continue;
                sum += static_cast<double>(x[at(((n * c.in + g * ig + k) * c.height + yy) * c.width + xx)]) *
                       w[at(weight)];
              }
          y[at(((n * c.out + o) * oh + i) * ow + j)] = Activate(c.activation, static_cast<float>(sum));
        }
  return y;
}

class ConvolutionTest : public testing::TestWithParam<std::tuple<Case, bool>> {};

TEST_P(ConvolutionTest, ComputesTheDefinition) {
  const auto& [c, packed] = GetParam();
  ModelBuilder builder;
  const Shape x_shape = {c.batch, c.in, c.height, c.width};
  const Shape w_shape = c.transposed ? Shape{c.in, c.out / c.groups, c.kernel_h, c.kernel_w}
                                     : Shape{c.out, c.in / c.groups, c.kernel_h, c.kernel_w};
  const auto x = builder.RandomValues(x_shape), w = builder.RandomValues(w_shape),
             b = builder.RandomValues({c.out});
  builder.Input("x", x_shape);
  const std::string weights = builder.Floats(w_shape, w);
  const std::string bias = c.bias ? builder.Floats({c.out}, b) : "";
  auto& step = builder.Step(c.transposed ? "ConvTranspose" : "Conv", {"x", weights, bias}, "y");
  ModelBuilder::Set(step, "pads", {c.pads.begin(), c.pads.end()});
  ModelBuilder::Set(step, "strides", {c.stride, c.stride});
  ModelBuilder::Set(step, "dilations", {c.dilation, c.dilation});
  ModelBuilder::Set(step, "group", c.groups);
  step.set_activation(c.activation);
  step.set_activation_alpha(std::string(c.activation) == "Clip" ? -0.5F : 0.1F);
  step.set_activation_beta(0.5F);
  builder.Output("y");
  proto::Model model = builder.model();
  std::vector<std::byte> blob = builder.weights();
  if (packed) {
    auto result = PackModel(model, blob, builder.input_specs());
    ASSERT_TRUE(result.ok()) << result.status();
    model = result->model;
    blob = result->weights;
  }
  auto plan = Plan::Build(model, blob, builder.input_specs(), 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto result = RunPlan(**plan, blob, {std::as_bytes(std::span(x))});
  ASSERT_TRUE(result.ok()) << result.status();
  const auto& spec = result->specs[0];
  const auto expected = Expected(c, x, w, b, spec.shape(2), spec.shape(3));
  const auto values = result->As<float>(0);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], 1e-3 + 1e-4 * std::abs(expected[i])) << "element " << i;
  }
}

const Case kCases[] = {
    {"one_tap", 1, 16, 64, 1, 13, 13, 1, 1},
    {"unaligned_out", 1, 64, 100, 1, 7, 7, 1, 1},
    {"many_classes", 1, 512, 1000, 1, 3, 3, 1, 1},
    {"other_blocks_on_two_threads", 1, 96, 576, 1, 14, 14, 1, 1},
    {"image", 2, 3, 64, 1, 17, 19, 7, 7, {3, 3, 3, 3}, 2},
    {"gray", 1, 1, 8, 1, 8, 8, 3, 3, {1, 1, 1, 1}},
    {"three_taps", 1, 48, 192, 1, 9, 9, 3, 3, {1, 1, 1, 1}},
    {"asymmetric", 1, 8, 24, 1, 9, 11, 3, 5, {0, 2, 1, 3}, 2},
    {"dilated", 1, 16, 16, 1, 15, 15, 3, 3, {2, 2, 2, 2}, 1, 2},
    {"grouped", 1, 32, 64, 4, 9, 9, 3, 3, {1, 1, 1, 1}},
    {"odd_groups", 1, 15, 30, 3, 9, 9, 3, 3, {1, 1, 1, 1}},
    {"depthwise", 1, 40, 40, 40, 9, 9, 3, 3, {1, 1, 1, 1}, 1, 1, false},
    {"row", 1, 6, 10, 1, 1, 20, 1, 3, {0, 1, 0, 1}},
    {"relu", 1, 16, 20, 1, 5, 5, 3, 3, {1, 1, 1, 1}, 1, 1, true, "Relu"},
    {"leaky", 1, 16, 20, 1, 5, 5, 3, 3, {1, 1, 1, 1}, 1, 1, true, "LeakyRelu"},
    {"clip", 1, 16, 20, 1, 5, 5, 3, 3, {1, 1, 1, 1}, 1, 1, true, "Clip"},
    {"sigmoid", 1, 16, 20, 1, 5, 5, 3, 3, {1, 1, 1, 1}, 1, 1, true, "Sigmoid"},
    {"tanh", 1, 16, 20, 1, 5, 5, 3, 3, {1, 1, 1, 1}, 1, 1, true, "Tanh"},
    {"hard_swish", 1, 16, 20, 1, 5, 5, 3, 3, {1, 1, 1, 1}, 1, 1, true, "HardSwish"},
    {"quick_gelu", 1, 16, 20, 1, 5, 5, 3, 3, {1, 1, 1, 1}, 1, 1, true, "com.microsoft.QuickGelu"},
    {"transposed", 1, 8, 12, 1, 5, 6, 3, 3, {1, 1, 1, 1}, 2, 1, true, "", true},
    {"transposed_groups", 2, 8, 12, 4, 5, 6, 2, 3, {0, 1, 1, 0}, 2, 1, false, "Relu", true},
};

INSTANTIATE_TEST_SUITE_P(All, ConvolutionTest, testing::Combine(testing::ValuesIn(kCases), testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) ? "_packed" : "");
                         });

}  // namespace
}  // namespace troupe::gpu

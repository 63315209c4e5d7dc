// Arithmetic of a tensor with one number for each of its channels, between convolutions, where the tensor stands in blocks of
// channels: what squeeze and excitation does.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/gpu_engine/model_builder.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu::channels_test {
namespace {

struct Case {
  const char* name;
  const char* op;
  std::int64_t batch, channels, groups;
  bool numbers_first = false;
  const char* activation = "";
};

class Channels : public testing::TestWithParam<Case> {};

float Expected(const Case& c, float x, float number) {
  const std::string op = c.op;
  const float y =
      op == "Add" ? x + number : (op == "Sub" ? x - number : (op == "Mul" ? x * number : x / number));
  return std::string(c.activation) == "Relu" ? std::max(y, 0.0F) : y;
}

TEST_P(Channels, EachPlaceMeetsTheNumberOfItsChannel) {
  const Case& c = GetParam();
  constexpr std::int64_t kSide = 5, kPlaces = kSide * kSide;
  ModelBuilder builder;
  const Shape shape{c.batch, c.channels, kSide, kSide};
  builder.Input("x", shape);
  const auto weights = builder.Random({c.channels, c.channels / c.groups, 3, 3});
  auto& conv = builder.Step("Conv", {"x", weights}, "y");
  ModelBuilder::Set(conv, "pads", std::vector<std::int64_t>{1, 1, 1, 1});
  ModelBuilder::Set(conv, "group", c.groups);
  builder.Step("GlobalAveragePool", {"y"}, "mean");
  auto& step =
      c.numbers_first ? builder.Step(c.op, {"mean", "y"}, "z") : builder.Step(c.op, {"y", "mean"}, "z");
  step.set_activation(c.activation);
  for (const char* name : {"y", "mean", "z"}) builder.Output(name);
  auto packed = PackModel(builder.model(), builder.weights(), builder.input_specs());
  ASSERT_TRUE(packed.ok()) << packed.status();
  auto plan = Plan::Build(packed->model, packed->weights, builder.input_specs(), 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto x = builder.RandomValues(shape);
  const auto result = RunPlan(**plan, packed->weights, {std::as_bytes(std::span(x))});
  ASSERT_TRUE(result.ok()) << result.status();
  const auto y = result->As<float>(0), mean = result->As<float>(1), z = result->As<float>(2);
  ASSERT_EQ(z.size(), y.size());
  for (std::size_t i = 0; i < z.size(); ++i) ASSERT_FLOAT_EQ(z[i], Expected(c, y[i], mean[i / kPlaces])) << i;
}

INSTANTIATE_TEST_SUITE_P(
    All, Channels,
    testing::Values(Case{"blocks_of_eight", "Mul", 1, 104, 13}, Case{"several_images", "Mul", 3, 24, 3},
                    Case{"whole_blocks", "Mul", 2, 64, 1}, Case{"no_blocks", "Mul", 2, 10, 1},
                    Case{"added", "Add", 2, 24, 3}, Case{"taken_away", "Sub", 2, 24, 3},
                    Case{"divided", "Div", 2, 24, 3}, Case{"numbers_first", "Mul", 2, 24, 3, true},
                    Case{"added_to", "Add", 2, 24, 3, true},
                    Case{"with_relu", "Add", 2, 24, 3, false, "Relu"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::gpu::channels_test

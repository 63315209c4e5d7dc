// Shapes that only the run knows, and what follows from them: sizes that grow with them are planned for their largest, and
// steps whose kernels depend on shapes are made anew for those of the run.
#include <numeric>

#include "gmock/gmock.h"
#include "gpu/engine/plan.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_engine/model_builder.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A model whose value "rows" has those rows of its input x [6, ...] where the input `wanted` is not 0.
class Chosen {
 public:
  explicit Chosen(Shape shape) {
    builder.Input("x", shape);
    builder.Input("wanted", {shape[0]});
    builder.Step("NonZero", {"wanted"}, "places");
    builder.Step("Squeeze", {"places", builder.Ints({0})}, "list");
    builder.Step("Gather", {"x", "list"}, "rows");
  }
  absl::StatusOr<PlanResult> Run(const std::vector<float>& x, const std::vector<float>& wanted) {
    TROUPE_ASSIGN_OR_RETURN(const auto plan,
                            Plan::Build(builder.model(), builder.weights(), builder.input_specs(), 1));
    return RunPlan(*plan, builder.weights(), {std::as_bytes(std::span(x)), std::as_bytes(std::span(wanted))});
  }
  [[nodiscard]] std::string Refusal() {
    const auto plan = Plan::Build(builder.model(), builder.weights(), builder.input_specs(), 1);
    return plan.ok() ? "accepted" : std::string(plan.status().message());
  }

  ModelBuilder builder;
};

std::vector<float> Counting(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

TEST(BoundedShapes, AnExpandToTheShapeOfChosenRowsIsPlannedForAllOfThem) {
  Chosen model({6});
  model.builder.Step("Shape", {"rows"}, "shape");
  model.builder.Step("Expand", {model.builder.Floats({1}, {7}), "shape"}, "y");
  model.builder.Output("y");
  const auto result = model.Run(Counting(6), {0, 1, 0, 1, 1, 0});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->specs[0].shape(), ElementsAre(3));
  EXPECT_THAT(result->As<float>(0), ElementsAre(7, 7, 7));
}

// Arithmetic that grows with the number of rows: twice as many and one, in a Range.
TEST(BoundedShapes, SizesThatGrowWithTheRowsAreBounded) {
  Chosen model({6});
  ModelBuilder& builder = model.builder;
  builder.Step("Shape", {"rows"}, "shape");
  builder.Step("Mul", {"shape", builder.Ints({2})}, "twice");
  builder.Step("Add", {"twice", builder.Ints({1})}, "more");
  builder.Step("Squeeze", {"more", builder.Ints({0})}, "limit");
  builder.Step("Range",
               {builder.Weight<std::int64_t>(proto::INT64, {}, {0}), "limit",
                builder.Weight<std::int64_t>(proto::INT64, {}, {1})},
               "y");
  builder.Output("y", {}, proto::INT64);
  const auto result = model.Run(Counting(6), {0, 1, 0, 1, 0, 0});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<std::int64_t>(0), ElementsAre(0, 1, 2, 3, 4));
}

// The fewer rows the larger it is: all rows are no bound.
TEST(BoundedShapes, ASizeThatShrinksWithTheRowsIsRefused) {
  Chosen model({6});
  ModelBuilder& builder = model.builder;
  builder.Step("Shape", {"rows"}, "shape");
  builder.Step("Sub", {builder.Ints({10}), "shape"}, "left");
  builder.Step("ConstantOfShape", {"left"}, "y");
  builder.Output("y");
  EXPECT_THAT(model.Refusal(), HasSubstr("must be known when the plan is made"));
}

TEST(BoundedShapes, AProductByNumbersBelowZeroDoesNotGrow) {
  Chosen model({6});
  ModelBuilder& builder = model.builder;
  builder.Step("Shape", {"rows"}, "shape");
  builder.Step("Mul", {"shape", builder.Ints({-1})}, "less");
  builder.Step("Add", {"less", builder.Ints({8})}, "left");
  builder.Step("ConstantOfShape", {"left"}, "y");
  builder.Output("y");
  EXPECT_THAT(model.Refusal(), HasSubstr("must be known when the plan is made"));
}

// Heads are split by a shape that was put together from the rows' own: the product behind it has to know its dimensions.
TEST(BoundedShapes, AReshapeKeepsTheDimensionsThatItsShapeSays) {
  Chosen model({6, 4});
  ModelBuilder& builder = model.builder;
  builder.Step("Shape", {"rows"}, "shape");
  ModelBuilder::Set(builder.Step("Gather", {"shape", builder.Ints({0})}, "count"), "axis", 0);
  ModelBuilder::Set(builder.Step("Concat", {"count", builder.Ints({2, 2})}, "target"), "axis", 0);
  builder.Step("Reshape", {"rows", "target"}, "split");
  builder.Step("MatMul", {"split", builder.Floats({2, 1}, {1, 10})}, "y");
  builder.Output("y");
  const auto result = model.Run(Counting(24), {1, 0, 0, 0, 0, 1});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->specs[0].shape(), ElementsAre(2, 2, 1));
  EXPECT_THAT(result->As<float>(0), ElementsAre(10, 32, 230, 252));
}

// Kernels of oneDNN want layouts of their own, which a plan cannot foresee here. The packed weights are in one, too.
TEST(BoundedShapes, ConvolutionsOfChosenImagesGiveWhatThoseOfAllGive) {
  const Shape images = {5, 3, 8, 8};
  const auto add_layers = [](ModelBuilder& builder, const std::string& x) {
    builder.Step("Conv", {x, builder.Random({16, 3, 3, 3}), builder.Random({16})}, "c");
    builder.Step("BatchNormalization",
                 {"c", builder.Random({16}), builder.Random({16}), builder.Random({16}),
                  builder.Floats({16}, std::vector<float>(16, 2))},
                 "n");
    ModelBuilder::Set(builder.Step("MaxPool", {"n"}, "p"), "kernel_shape", {2, 2});
    builder.Step("Conv", {"p", builder.Random({8, 16, 3, 3})}, "y");
    builder.Output("y");
  };
  ModelBuilder all;
  const std::vector<float> x = all.RandomValues(images);
  all.Input("x", images);
  add_layers(all, "x");
  const auto plan = Plan::Build(all.model(), all.weights(), all.input_specs(), 1);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto whole = RunPlan(**plan, all.weights(), {std::as_bytes(std::span(x))});
  ASSERT_TRUE(whole.ok()) << whole.status();
  const std::vector<float> expected = whole->As<float>(0);
  const std::size_t each = expected.size() / 5;

  Chosen model(images);
  (void)model.builder.RandomValues(images);  // the same weights follow
  add_layers(model.builder, "rows");
  const std::vector<float> wanted = {0, 1, 0, 0, 1};
  const auto check = [&](const proto::Model& canonical, std::span<const std::byte> weights) {
    const auto made = Plan::Build(canonical, weights, model.builder.input_specs(), 1);
    ASSERT_TRUE(made.ok()) << made.status();
    const auto result =
        RunPlan(**made, weights, {std::as_bytes(std::span(x)), std::as_bytes(std::span(wanted))});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->specs[0].shape(0), 2);
    const std::vector<float> values = result->As<float>(0);
    ASSERT_EQ(values.size(), 2 * each);
    for (std::size_t i = 0; i < each; ++i) {
      ASSERT_NEAR(values[i], expected[each + i], 1e-4) << i;
      ASSERT_NEAR(values[each + i], expected[4 * each + i], 1e-4) << i;
    }
  };
  check(model.builder.model(), model.builder.weights());
  const auto packed = PackModel(model.builder.model(), model.builder.weights(), model.builder.input_specs());
  ASSERT_TRUE(packed.ok()) << packed.status();
  check(packed->model, packed->weights);
}

}  // namespace
}  // namespace troupe::gpu

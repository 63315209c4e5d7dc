// Products of one row with packed weights, as a decoder has for each token, against loops; and of more rows, which take
// another way.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/gpu_engine/model_builder.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu::row_product_test {
namespace {

struct Case {
  const char* name;
  std::int64_t rows, depth, columns;
  bool gemm = false;  // with alpha 0.5 and beta 2
  bool added = false;
  const char* activation = "";
};

class RowProducts : public testing::TestWithParam<Case> {};

TEST_P(RowProducts, AreWhatLoopsCompute) {
  const Case& c = GetParam();
  ModelBuilder builder;
  builder.Input("x", {c.rows, c.depth});
  const auto w = builder.RandomValues({c.depth, c.columns}), b = builder.RandomValues({c.columns});
  const std::string weights = builder.Floats({c.depth, c.columns}, w);
  auto& step =
      c.added ? builder.Step(c.gemm ? "Gemm" : "MatMul", {"x", weights, builder.Floats({c.columns}, b)}, "y")
              : builder.Step(c.gemm ? "Gemm" : "MatMul", {"x", weights}, "y");
  if (c.gemm) {
    ModelBuilder::SetFloat(step, "alpha", 0.5F);
    ModelBuilder::SetFloat(step, "beta", 2);
  }
  step.set_activation(c.activation);
  builder.Output("y");
  auto packed = PackModel(builder.model(), builder.weights(), builder.input_specs());
  ASSERT_TRUE(packed.ok()) << packed.status();
  auto plan = Plan::Build(packed->model, packed->weights, builder.input_specs(), 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto x = builder.RandomValues({c.rows, c.depth});
  const auto result = RunPlan(**plan, packed->weights, {std::as_bytes(std::span(x))});
  ASSERT_TRUE(result.ok()) << result.status();
  const auto y = result->As<float>(0);
  ASSERT_EQ(y.size(), static_cast<std::size_t>(c.rows * c.columns));
  for (std::int64_t i = 0; i < c.rows * c.columns; ++i) {
    double sum = 0;
    for (std::int64_t k = 0; k < c.depth; ++k)
      sum += static_cast<double>(x[static_cast<std::size_t>(i / c.columns * c.depth + k)]) *
             w[static_cast<std::size_t>(k * c.columns + i % c.columns)];
    if (c.gemm) sum *= 0.5;
    if (c.added) sum += (c.gemm ? 2.0 : 1.0) * b[static_cast<std::size_t>(i % c.columns)];
    if (std::string(c.activation) == "Relu") sum = std::max(sum, 0.0);
    ASSERT_NEAR(y[static_cast<std::size_t>(i)], sum, 1e-4 + 1e-5 * std::abs(sum)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RowProducts,
                         testing::Values(Case{"plain", 1, 64, 128}, Case{"part_of_a_panel", 1, 48, 100},
                                         Case{"less_than_a_panel", 1, 128, 10}, Case{"large", 1, 768, 3072},
                                         Case{"depth_of_no_block", 1, 40, 128},
                                         Case{"biased", 1, 64, 200, false, true},
                                         Case{"biased_relu", 1, 64, 200, false, true, "Relu"},
                                         Case{"gemm", 1, 64, 200, true},
                                         Case{"gemm_added", 1, 64, 200, true, true},
                                         Case{"gemm_relu", 1, 64, 200, true, true, "Relu"},
                                         Case{"rows", 3, 64, 200, false, true, "Relu"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::gpu::row_product_test

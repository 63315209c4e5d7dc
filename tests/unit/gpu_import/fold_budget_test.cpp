// The work of folding is counted: a constant beyond the budget stays in the graph.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gpu/import/import_model.hpp"
#include "gpu/import/passes.hpp"
#include "tests/unit/gpu_import/onnx_builder.hpp"

namespace troupe::gpu::test {
namespace {

using testing::HasSubstr;

ValueInfo Floats(std::vector<std::int64_t> shape) {
  ValueInfo info;
  info.type = proto::FP32;
  info.shape = std::move(shape);
  return info;
}

std::uint64_t Operations(const std::string& op, const std::vector<ValueInfo>& in, const ValueInfo& out) {
  proto::Step step;
  step.set_op(op);
  const std::vector<ValueInfo> outs = {out};
  return FoldOperations({step, 17}, in, outs);
}

std::size_t Count(const proto::Model& model, const std::string& op) {
  return static_cast<std::size_t>(std::count_if(model.steps().begin(), model.steps().end(),
                                                [&](const proto::Step& step) { return step.op() == op; }));
}

// y = x + the sum of the last of `count` products of constant matrices of this width.
OnnxBuilder Products(int count, std::int64_t width) {
  OnnxBuilder b;
  b.Ints("size", {width, width});
  b.Node("ConstantOfShape", {"size"}, {"w"});
  b.Node("MatMul", {"w", "w"}, {"p0"}, "product0");
  for (int i = 1; i < count; ++i)
    b.Node("MatMul", {"p" + std::to_string(i - 1), "w"}, {"p" + std::to_string(i)},
           "product" + std::to_string(i));
  b.Input("x", {width, width});
  b.Node("Add", {"x", "p" + std::to_string(count - 1)}, {"y"});
  b.Output("y", {width, width});
  return b;
}

TEST(FoldOperations, AreMultiplyAddsAndElements) {
  EXPECT_EQ(Operations("MatMul", {Floats({2, 3}), Floats({3, 5})}, Floats({2, 5})), 30u + 6 + 15 + 10);
  EXPECT_EQ(Operations("Gemm", {Floats({2, 3}), Floats({3, 5})}, Floats({2, 5})), 30u + 6 + 15 + 10);
  EXPECT_EQ(Operations("Conv", {Floats({1, 3, 8, 8}), Floats({4, 3, 3, 3})}, Floats({1, 4, 6, 6})),
            144u * 27 + 192 + 108 + 144);
  EXPECT_EQ(
      Operations("LSTM", {Floats({7, 2, 3}), Floats({1, 16, 3}), Floats({1, 16, 4})}, Floats({7, 1, 2, 4})),
      14u * (48 + 64) + 42 + 48 + 64 + 56);
  EXPECT_EQ(Operations("Attention", {Floats({1, 1, 2, 4}), Floats({1, 1, 3, 4}), Floats({1, 1, 3, 4})},
                       Floats({1, 1, 2, 4})),
            8u * 24 + 8 + 12 + 12 + 8);
  EXPECT_EQ(Operations("DFT", {Floats({1, 7, 1})}, Floats({1, 7, 2})), 14u * 14 + 7 + 14);
  EXPECT_EQ(Operations("Add", {Floats({4}), Floats({4})}, Floats({4})), 12u);
  EXPECT_EQ(Operations("Shape", {Floats({1000, 1000})}, Floats({2})), 2u) << "Shape reads no element";
}

TEST(FoldOperations, WhatDoesNotFitIsTheLargestNumber) {
  const auto huge = Floats({std::int64_t{1} << 40});
  EXPECT_EQ(Operations("Einsum", {huge, huge}, Floats({1})), ~std::uint64_t{0});
}

TEST(FoldBudget, AChainOfLargeConstantProductsIsLeftToTheModelsRuns) {
  const auto imported = ImportOnnx(AsBytes(Products(50, 4096).File()), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(Count(imported->model, "MatMul"), 50u);
  EXPECT_LE(imported->weights.size(), std::size_t{65} << 20);
}

TEST(FoldBudget, FoldingStopsWhereItIsSpentAndSmallerStepsGoOn) {
  ImportOptions options;
  // A product of 64 costs 64^3 + 3 * 64^2 operations, and the constant one fill of 64^2.
  options.folding.operations = 3 * (64 * 64 * 64 + 3 * 64 * 64) + 64 * 64 + 100;
  const auto imported = ImportOnnx(AsBytes(Products(10, 64).File()), options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(Count(imported->model, "MatMul"), 7u);
  const auto again = ImportOnnx(AsBytes(Products(10, 64).File()), options);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->model.SerializeAsString(), imported->model.SerializeAsString())
      << "the work is counted, not timed";
  const auto all = ImportOnnx(AsBytes(Products(10, 64).File()), {});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(Count(all->model, "MatMul"), 0u);
}

TEST(FoldBudget, AConstantExpandedToGigabytesStaysAnExpand) {
  OnnxBuilder b;
  b.Weight("one", {1}, {1});
  b.Ints("size", {std::int64_t{1} << 29});
  b.Node("Expand", {"one", "size"}, {"wide"}, "bomb");
  b.Input("x", {1});
  b.Node("Add", {"x", "wide"}, {"y"});
  b.Output("y", {std::int64_t{1} << 29});
  const auto imported = ImportOnnx(AsBytes(b.File()), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(Count(imported->model, "Expand"), 1u);
  EXPECT_LT(imported->weights.size(), std::size_t{1} << 20);
}

TEST(FoldBudget, BytesAreCountedAcrossStepsAlsoOfWhatIsForgotten) {
  OnnxBuilder b;
  b.Ints("size", {1 << 18});
  b.Node("ConstantOfShape", {"size"}, {"v0"});
  for (int i = 0; i < 9; ++i) b.Node("Exp", {"v" + std::to_string(i)}, {"v" + std::to_string(i + 1)});
  b.Input("x", {1});
  b.Node("Add", {"x", "v9"}, {"y"});
  b.Output("y", {1 << 18});
  ImportOptions options;
  options.folding.bytes = MiB(5);  // each result takes 1 MiB
  const auto imported = ImportOnnx(AsBytes(b.File()), options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(Count(imported->model, "Exp"), 5u);
}

TEST(FoldBudget, AnErrorAfterwardsNamesTheStepTheWorkAndTheLimit) {
  ImportOptions options;
  options.folding.operations = 64 * 64 + 100;
  FoldBudget budget(options.folding);
  proto::Step step;
  step.set_op("MatMul");
  step.set_name("product0");
  const std::vector<ValueInfo> in = {Floats({64, 64}), Floats({64, 64})};
  const std::vector<ValueInfo> out = {Floats({64, 64})};
  EXPECT_FALSE(budget.Spend({step, 17}, in, out));
  EXPECT_EQ(budget.operations(), 0u);
  EXPECT_THAT(budget.stopped(), testing::AllOf(HasSubstr("'product0'"), HasSubstr("274432 operations"),
                                               HasSubstr("limits of 4196 operations")));
}

TEST(FoldBudget, AModelThatFailsAfterwardsSaysWhereFoldingStopped) {
  OnnxBuilder b = Products(1, 64);
  b.Ints("more", {100, 100});
  b.Node("ConstantOfShape", {"more"}, {"z"}, "more");
  b.Output("z", {100, 100});
  ImportOptions options;
  options.folding.operations = 50'000;  // enough for the two constants, and not for their product
  options.max_weights = KiB(20);
  const absl::Status status = ImportOnnx(AsBytes(b.File()), options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(status.message(), testing::AllOf(HasSubstr("'more'"), HasSubstr("folding stopped before"),
                                               HasSubstr("'product0' needs 274432 operations")));
}

}  // namespace
}  // namespace troupe::gpu::test

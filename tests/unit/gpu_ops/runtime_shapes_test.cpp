// Shapes that only the run knows: the plan is made for a bound, the real shape at run time.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "gpu/ops/step_kernel.hpp"
#include "tests/unit/gpu_ops/op_runner.hpp"

namespace troupe::gpu {
namespace {

TEST(RuntimeShapes, ReshapeToAComputedShape) {
  const auto out = RunOp(MakeStep("Reshape"), {Counting({2, 3}), Longs({2}, {3, -1})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape, (Shape{3, 2}));
  EXPECT_EQ((*out)[0].As<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(RuntimeShapes, SliceByComputedBounds) {
  const auto out = RunOp(MakeStep("Slice"), {Counting({2, 3}), Longs({1}, {-1}), Longs({1}, {-100}),
                                             Longs({1}, {1}), Longs({1}, {-2})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape, (Shape{2, 2}));
  EXPECT_EQ((*out)[0].As<float>(), (std::vector<float>{3, 1, 6, 4}));
}

TEST(RuntimeShapes, TopKOfAComputedK) {
  const auto out = RunOp(MakeStep("TopK", 2), {Floats({4}, {3, 9, 1, 9}), Longs({1}, {3})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].As<float>(), (std::vector<float>{9, 9, 3}));
  EXPECT_EQ((*out)[1].As<std::int64_t>(), (std::vector<std::int64_t>{1, 3, 0}));
}

TEST(RuntimeShapes, ReduceOverComputedAxes) {
  proto::Step step = MakeStep("ReduceSum");
  SetInt(step, "keepdims", 0);
  const auto out = RunOp(step, {Counting({2, 3}), Longs({1}, {-1})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape, (Shape{2}));
  EXPECT_EQ((*out)[0].As<float>(), (std::vector<float>{6, 15}));
}

TEST(RuntimeShapes, SplitIntoComputedParts) {
  const auto out = RunOp(MakeStep("Split", 2), {Counting({5}), Longs({2}, {1, 4})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape, (Shape{1}));
  EXPECT_EQ((*out)[1].As<float>(), (std::vector<float>{2, 3, 4, 5}));
}

// A Gather behind NonZero is planned for four indices and run with two.
TEST(RuntimeShapes, ConsumersOfABoundedValueSeeItsRealShape) {
  const proto::Step step = MakeStep("Gather");
  const Operator* gather = FindOperator("Gather", 17);
  const StepContext ctx{step, 17};
  std::vector<ValueInfo> in(2);
  in[0].type = proto::FP32;
  in[0].shape = {4, 2};
  in[1].type = proto::INT64;
  in[1].shape = {4};
  in[1].bounded = true;
  const auto planned = InferStep(*gather, ctx, in);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_TRUE((*planned)[0].bounded);
  EXPECT_EQ((*planned)[0].shape, (Shape{4, 2}));
  const auto kernel = MakeStepKernel(*gather, ctx, in, *planned);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  std::vector<float> data = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<std::int64_t> indices = {3, 1};
  std::vector<float> result(8, -1);
  const TensorView views[] = {{proto::FP32, {4, 2}, reinterpret_cast<std::byte*>(data.data())},
                              {proto::INT64, {2}, reinterpret_cast<std::byte*>(indices.data())}};
  TensorView out[] = {{proto::FP32, {4, 2}, reinterpret_cast<std::byte*>(result.data())}};
  ASSERT_TRUE((*kernel)->Run(views, out, nullptr).ok());
  EXPECT_EQ(out[0].shape, (Shape{2, 2}));
  EXPECT_EQ(result, (std::vector<float>{6, 7, 2, 3, -1, -1, -1, -1}));
}

TEST(RuntimeShapes, WhatOutgrowsItsBoundIsAnError) {
  const proto::Step step = MakeStep("Concat");
  const Operator* concat = FindOperator("Concat", 17);
  const StepContext ctx{step, 17};
  std::vector<ValueInfo> in(1);
  in[0].type = proto::FP32;
  in[0].shape = {2, 2};
  in[0].bounded = true;
  const auto planned = InferStep(*concat, ctx, in);
  const auto kernel = MakeStepKernel(*concat, ctx, in, *planned);
  std::vector<float> data(6);
  std::vector<float> result(4);
  const TensorView views[] = {{proto::FP32, {3, 2}, reinterpret_cast<std::byte*>(data.data())}};
  TensorView out[] = {{proto::FP32, {2, 2}, reinterpret_cast<std::byte*>(result.data())}};
  const absl::Status status = (*kernel)->Run(views, out, nullptr);
  EXPECT_TRUE(absl::StrContains(status.message(), "planned for 4 elements")) << status;
}

TEST(RuntimeShapes, NonZeroAndCompressTellTheirSize) {
  const auto where = RunOp(MakeStep("NonZero"), {Floats({2, 2}, {0, 5, 0, 7})});
  ASSERT_TRUE(where.ok()) << where.status();
  EXPECT_EQ((*where)[0].shape, (Shape{2, 2}));
  EXPECT_EQ((*where)[0].As<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 1, 1}));
  const auto kept =
      RunOp(MakeStep("Compress"), {Counting({3}), Tensor<std::uint8_t>(proto::BOOL, {3}, {0, 0, 0})});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ((*kept)[0].shape, (Shape{0}));
}

}  // namespace
}  // namespace troupe::gpu

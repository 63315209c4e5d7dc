// Plans: which steps are folded, share memory, wait for weights, or are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/gpu_engine/model_builder.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::span<const std::byte> BytesOf(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

absl::StatusOr<std::unique_ptr<Plan>> Build(ModelBuilder& builder, int threads = 1) {
  return Plan::Build(builder.model(), builder.weights(), builder.input_specs(), threads);
}

std::string Refusal(ModelBuilder& builder) {
  const auto plan = Build(builder);
  return plan.ok() ? "accepted" : std::string(plan.status().message());
}

TEST(Plan, RunsStepsInOrderIntoTheBoundOutput) {
  ModelBuilder builder;
  builder.Input("x", {4});
  builder.Step("Add", {"x", builder.Floats({4}, {1, 2, 3, 4})}, "sum");
  builder.Step("Relu", {"sum"}, "y");
  builder.Output("y");
  auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->step_count(), 2U);
  EXPECT_EQ((*plan)->output_bytes(0), Bytes(16));
  // Add writes into the output's memory and Relu works in place: no activations are left.
  EXPECT_EQ((*plan)->activation_bytes(), Bytes(0));
  const auto result = RunPlan(**plan, builder.weights(), {BytesOf({-5, -1, 0, 1})});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<float>(0), ElementsAre(0, 1, 3, 5));
}

TEST(Plan, FoldsShapeArithmetic) {
  ModelBuilder builder;
  builder.Input("x", {2, 3, 4});
  builder.Step("Shape", {"x"}, "shape");
  auto& gather = builder.Step("Gather", {"shape", builder.Ints({0})}, "batch");
  ModelBuilder::Set(gather, "axis", std::int64_t{0});
  auto& concat = builder.Step("Concat", {"batch", builder.Ints({-1})}, "wanted");
  ModelBuilder::Set(concat, "axis", std::int64_t{0});
  builder.Step("Reshape", {"x", "wanted"}, "flat");
  builder.Step("Relu", {"flat"}, "y");
  builder.Output("y");
  auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->step_count(), 1U);  // the reshape is a view, the other steps are folded
  EXPECT_THAT((*plan)->outputs()[0].shape(), ElementsAre(2, 12));
}

TEST(Plan, CopiesWhatCannotBeWrittenInPlace) {
  ModelBuilder builder;
  builder.Input("x", {2, 2});
  builder.Step("Relu", {"x"}, "r");
  builder.Step("Reshape", {"r", builder.Ints({4})}, "y");
  for (const char* name : {"r", "y", "y", "x"}) builder.Output(name);
  auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto result = RunPlan(**plan, builder.weights(), {BytesOf({-1, 2, -3, 4})});
  ASSERT_TRUE(result.ok()) << result.status();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_THAT(result->As<float>(i), ElementsAre(0, 2, 0, 4)) << i;
  EXPECT_THAT(result->As<float>(3), ElementsAre(-1, 2, -3, 4));
}

TEST(Plan, InPlaceNeverDestroysWhatIsReadLater) {
  ModelBuilder builder;
  builder.Input("x", {3});
  builder.Step("Neg", {"x"}, "a");
  builder.Step("Relu", {"a"}, "b");
  builder.Step("Add", {"a", "b"}, "c");
  builder.Step("Add", {"c", "c"}, "d");
  builder.Step("Sub", {"d", "a"}, "y");
  builder.Output("y");
  auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto result = RunPlan(**plan, builder.weights(), {BytesOf({1, -2, 3})});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<float>(0), ElementsAre(-1, 6, -3));
}

TEST(Plan, StepsNameTheWeightsTheyRead) {
  ModelBuilder builder;
  builder.Input("x", {1, 8});
  const std::string first = builder.Random({8, 8}), second = builder.Random({8, 8});
  builder.Step("MatMul", {"x", first}, "h");
  builder.Step("MatMul", {"h", second}, "y");
  builder.Output("y");
  auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  using Range = std::pair<std::uint64_t, std::uint64_t>;
  EXPECT_THAT((*plan)->step_weights(0).ranges, ElementsAre(Range(0, 256)));
  EXPECT_THAT((*plan)->step_weights(1).ranges, ElementsAre(Range(256, 256)));
}

TEST(Plan, ReadsItsWeightsWhereTheyArePlaced) {
  ModelBuilder builder;
  builder.Input("x", {16});
  std::vector<float> ones(16, 1);
  std::vector<float> twos(16, 2);
  std::string last = "x";
  for (int i = 0; i < 4; ++i) {  // the steps are x + 1, * 2, + 1, * 2
    const std::string weight = builder.Floats({16}, i % 2 == 0 ? ones : twos);
    last = builder.Step(i % 2 == 0 ? "Add" : "Mul", {last, weight}, "v" + std::to_string(i)).outputs(0);
  }
  builder.Output(last);
  auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  // All weights share one place: before each step the weight that it reads is put there.
  const AlignedBuffer window = MakeBuffer(64);
  std::vector<WeightPlace> places;
  for (std::size_t step = 0; step < (*plan)->step_count(); ++step) {
    const auto& ranges = (*plan)->step_weights(step).ranges;
    ASSERT_EQ(ranges.size(), 1u);
    places.push_back({ranges[0].first, ranges[0].second, window.get()});
  }
  std::ranges::sort(places, {}, &WeightPlace::offset);
  const auto bring = [&](std::size_t step) {
    const auto& range = (*plan)->step_weights(step).ranges[0];
    std::memcpy(window.get(), builder.weights().data() + range.first, range.second);
    return absl::OkStatus();
  };
  const std::vector<float> x(16, 3);
  const auto whole = RunPlan(**plan, builder.weights(), {BytesOf(x)});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_THAT(whole->As<float>(0), testing::Each(18));
  const auto placed = RunPlan(**plan, builder.weights(), {BytesOf(x)}, bring, places);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(placed->data, whole->data);
  places[1].address += 4;
  const auto crooked = RunPlan(**plan, builder.weights(), {BytesOf(x)}, bring, places);
  EXPECT_EQ(crooked.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Plan, WaitsBeforeEachStepAndStopsOnAnError) {
  ModelBuilder builder;
  builder.Input("x", {3});
  builder.Step("Neg", {"x"}, "a");
  builder.Step("Exp", {"a"}, "b");
  builder.Step("Neg", {"b"}, "y");
  builder.Output("y");
  auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::size_t> asked;
  const auto result = RunPlan(**plan, builder.weights(), {BytesOf({1, 2, 3})}, [&](std::size_t step) {
    asked.push_back(step);
    return step == 1 ? absl::CancelledError("the client went away") : absl::OkStatus();
  });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(asked, ElementsAre(0, 1));
}

TEST(Plan, TellsRealShapesOfDataDependentOutputs) {
  ModelBuilder builder;
  builder.Input("x", {2, 3});
  builder.Step("NonZero", {"x"}, "y");
  builder.Output("y", {}, proto::INT64);
  auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->output_bytes(0), Bytes(2 * 6 * 8));
  for (int round = 0; round < 2; ++round) {
    const auto result = RunPlan(**plan, builder.weights(), {BytesOf({0, 1, 0, 2, 0, 0})});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->specs[0].shape(), ElementsAre(2, 2));
    EXPECT_THAT(result->As<std::int64_t>(0), ElementsAre(0, 1, 1, 0));
  }
}

TEST(Plan, RefusesWrongInputs) {
  ModelBuilder builder;
  builder.Input("x", {-1, 3});
  builder.Step("Relu", {"x"}, "y");
  builder.Output("y");
  const auto with = [&](Shape shape, proto::DataType type) {
    std::vector<proto::TensorSpec> inputs = builder.input_specs();
    inputs[0].set_type(type);
    inputs[0].mutable_shape()->Assign(shape.begin(), shape.end());
    const auto plan = Plan::Build(builder.model(), builder.weights(), inputs, 1);
    return plan.ok() ? "accepted" : std::string(plan.status().message());
  };
  EXPECT_EQ(with({5, 3}, proto::FP32), "accepted");
  EXPECT_EQ(with({0, 3}, proto::FP32), "accepted");
  EXPECT_THAT(with({5, 4}, proto::FP32), HasSubstr("input 'x' is FP32[5,4], expected FP32[-1,3]"));
  EXPECT_THAT(with({-1, 3}, proto::FP32), HasSubstr("input 'x'"));
  EXPECT_THAT(with({5, 3}, proto::INT64), HasSubstr("expected FP32"));
  EXPECT_THAT(with({3}, proto::FP32), HasSubstr("input 'x'"));
  EXPECT_FALSE(Plan::Build(builder.model(), builder.weights(), {}, 1).ok());
  EXPECT_FALSE(Build(builder, 0).ok());
}

TEST(Plan, RefusesHostileModels) {
  {
    ModelBuilder builder;
    builder.Input("x", {2});
    builder.Step("Nonsense", {"x"}, "y");
    builder.Step("Rubbish", {"y"}, "z");
    EXPECT_THAT(Refusal(builder), HasSubstr("Nonsense, Rubbish"));
  }
  {
    ModelBuilder builder;
    builder.Input("x", {2});
    builder.Step("Relu", {"later"}, "y");
    EXPECT_THAT(Refusal(builder), HasSubstr("Relu 'step1': reads 'later'"));
  }
  {
    ModelBuilder builder;
    builder.Input("x", {2});
    builder.Step("Relu", {"x"}, "x");
    EXPECT_THAT(Refusal(builder), HasSubstr("'x' is produced twice"));
  }
  {
    ModelBuilder builder;
    builder.Input("x", {2});
    builder.Output("nowhere");
    EXPECT_THAT(Refusal(builder), HasSubstr("'nowhere' is produced by no step"));
  }
  {
    ModelBuilder builder;
    builder.Input("x", {1, 3, 8, 8});
    builder.Step("Conv", {"x", builder.Random({4, 5, 3, 3})}, "y");
    builder.Output("y");
    EXPECT_THAT(Refusal(builder), HasSubstr("Conv 'step1': input [1,3,8,8] has 3 channels"));
  }
}

TEST(Plan, RefusesWeightsOutsideTheBlob) {
  const auto with = [](auto change) {
    ModelBuilder builder;
    builder.Input("x", {4});
    builder.Step("Add", {"x", builder.Floats({4}, {1, 2, 3, 4})}, "y");
    builder.Output("y");
    change(*builder.model().mutable_weights(0));
    return Refusal(builder);
  };
  EXPECT_EQ(with([](proto::Weight&) {}), "accepted");
  EXPECT_THAT(with([](proto::Weight& w) { w.set_offset(64); }), HasSubstr("outside the blob"));
  EXPECT_THAT(with([](proto::Weight& w) { w.set_offset(~std::uint64_t{63}); }),
              HasSubstr("outside the blob"));
  EXPECT_THAT(with([](proto::Weight& w) { w.set_offset(4); }), HasSubstr("multiple of 64"));
  EXPECT_THAT(with([](proto::Weight& w) { w.set_length(12); }), HasSubstr("need 16"));
  EXPECT_THAT(with([](proto::Weight& w) { w.set_shape(0, std::int64_t{1} << 50); }), HasSubstr("2^40"));
  EXPECT_THAT(with([](proto::Weight& w) { w.set_layout("x"); }), HasSubstr("not packed"));
}

TEST(Plan, RefusesUnboundMemory) {
  ModelBuilder builder;
  builder.Input("x", {4});
  builder.Step("Add", {"x", builder.Floats({4}, {1, 2, 3, 4})}, "y");
  builder.Output("y");
  auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE((*plan)->Run({}).ok());
  const AlignedBuffer memory = MakeBuffer(128);
  PlanBindings bindings;
  bindings.weights = memory.get();
  bindings.inputs = {memory.get()};
  bindings.outputs = {memory.get() + 4};
  EXPECT_THAT(std::string((*plan)->Run(bindings).status().message()), HasSubstr("aligned"));
}

}  // namespace
}  // namespace troupe::gpu

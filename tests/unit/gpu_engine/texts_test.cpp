// Texts in plans: in and out as the protocol has them, their bounds, and what moves them, makes them and reads them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gpu/engine/program_builder.hpp"
#include "gpu/ops/text_room.hpp"
#include "tests/packed_texts.hpp"
#include "tests/unit/gpu_engine/model_builder.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Strings = std::vector<std::string>;

std::int64_t OnnxType(proto::DataType type) {
  switch (type) {
    case proto::FP32:
      return 1;
    case proto::INT32:
      return 6;
    case proto::INT64:
      return 7;
    case proto::BYTES:
      return 8;
    case proto::BOOL:
      return 9;
    default:
      return 0;
  }
}

std::string TextWeight(ModelBuilder& builder, const Shape& shape, const Strings& texts) {
  return builder.Weight(proto::BYTES, shape, PackTexts(texts));
}

void Cast(ModelBuilder& builder, const std::string& from, const std::string& to, proto::DataType type) {
  ModelBuilder::Set(builder.Step("Cast", {from}, to), "to", OnnxType(type));
}

absl::StatusOr<std::unique_ptr<Plan>> BuildPlan(ModelBuilder& builder) {
  return Plan::Build(builder.model(), builder.weights(), builder.input_specs(), 1);
}

absl::StatusOr<PlanResult> RunModel(ModelBuilder& builder,
                                    const std::vector<std::vector<std::byte>>& inputs) {
  TROUPE_ASSIGN_OR_RETURN(const auto plan, BuildPlan(builder));
  return RunPlan(*plan, builder.weights(), {inputs.begin(), inputs.end()});
}

std::string WhyNot(ModelBuilder& builder, const std::vector<std::vector<std::byte>>& inputs) {
  const auto result = RunModel(builder, inputs);
  return result.ok() ? "accepted" : std::string(result.status().message());
}

std::vector<std::byte> Raw(const std::vector<std::int64_t>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// Triton's example simple_string.
void AddSums(ModelBuilder& builder, const Shape& shape) {
  for (const char* name : {"INPUT0", "INPUT1"}) {
    builder.Input(name, shape, proto::BYTES);
    Cast(builder, name, std::string(name) + ".number", proto::INT32);
  }
  builder.Step("Add", {"INPUT0.number", "INPUT1.number"}, "sum");
  builder.Step("Sub", {"INPUT0.number", "INPUT1.number"}, "difference");
  Cast(builder, "sum", "OUTPUT0", proto::BYTES);
  Cast(builder, "difference", "OUTPUT1", proto::BYTES);
  builder.Output("OUTPUT0", shape, proto::BYTES);
  builder.Output("OUTPUT1", shape, proto::BYTES);
}

TEST(PlanTexts, SumsNumbersThatAreTexts) {
  ModelBuilder builder;
  AddSums(builder, {1, 3});
  const auto result =
      RunModel(builder, {PackTexts({"1", " -20 ", "2147483000"}), PackTexts({"2", "+5", "600"})});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(UnpackTexts(result->data[0]), ElementsAre("3", "-15", "2147483600"));
  EXPECT_THAT(UnpackTexts(result->data[1]), ElementsAre("-1", "-25", "2147482400"));
  EXPECT_EQ(result->specs[0].type(), proto::BYTES);
  EXPECT_THAT(result->specs[0].shape(), ElementsAre(1, 3));
  EXPECT_EQ(result->specs[0].text_bytes(), 3 * 4 + 1 + 3 + 10U);
}

TEST(PlanTexts, OnePlanServesTextsOfAnyLengthInItsRoom) {
  ModelBuilder builder;
  builder.Input("x", {2}, proto::BYTES);
  builder.Step("Identity", {"x"}, "y");
  builder.Output("y", {2}, proto::BYTES);
  auto plan = BuildPlan(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const Strings& texts :
       {Strings{"", ""}, Strings{std::string(100, 'a'), "b"}, Strings{"\xff", std::string(1, 0)}}) {
    const auto result = RunPlan(**plan, builder.weights(), {PackTexts(texts)});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(UnpackTexts(result->data[0]), texts);
  }
  const auto large = RunPlan(**plan, builder.weights(), {PackTexts({std::string(300, 'a'), "b"})});
  EXPECT_THAT(large.status().message(), HasSubstr("309 bytes, the plan has room for 256"));
}

TEST(PlanTexts, LengthsThatDoNotAddUpAreRefused) {
  ModelBuilder builder;
  builder.Input("x", {2}, proto::BYTES);
  builder.Step("Identity", {"x"}, "y");
  builder.Output("y", {2}, proto::BYTES);
  EXPECT_THAT(WhyNot(builder, {PackTexts({"one"})}), HasSubstr("its 7 bytes end after 1 of 2 texts"));
  EXPECT_THAT(WhyNot(builder, {PackTexts({"1", "2", "3"})}), HasSubstr("5 bytes are left after its 2 texts"));
  auto claims = PackTexts({"a", "b"});
  const std::uint32_t huge = 1 << 30;
  std::memcpy(claims.data() + 5, &huge, sizeof(huge));
  EXPECT_THAT(WhyNot(builder, {claims}),
              HasSubstr("input 'x': text 1 says it has 1073741824 bytes, but only 1 are left"));
}

TEST(PlanTexts, MovesTextsOfInputsAndConstants) {
  ModelBuilder builder(18);
  builder.Input("x", {2, 2}, proto::BYTES);
  const std::string words = TextWeight(builder, {3}, {"zero", "one", "two"});
  builder.Step("Gather", {words, builder.Ints({2, 0, 2, 1})}, "chosen");
  builder.Step("Reshape", {"chosen", builder.Ints({2, 2})}, "square");
  ModelBuilder::Set(builder.Step("Concat", {"x", "square"}, "both"), "axis", std::int64_t{0});
  ModelBuilder::Set(builder.Step("Transpose", {"both"}, "turned"), "perm", std::vector<std::int64_t>{1, 0});
  builder.Step("Slice", {"turned", builder.Ints({0, 1}), builder.Ints({2, 4})}, "y");
  builder.Output("y", {2, 3}, proto::BYTES);
  const auto result = RunModel(builder, {PackTexts({"a", "b", "c", "d"})});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(UnpackTexts(result->data[0]), ElementsAre("c", "two", "two", "d", "zero", "one"));
}

TEST(PlanTexts, WhatAStepMadeOutlivesTheStep) {
  ModelBuilder builder(18);
  builder.Input("x", {64}, proto::INT64);
  builder.Input("i", {2}, proto::INT64);
  Cast(builder, "x", "texts", proto::BYTES);
  builder.Step("Gather", {"texts", "i"}, "two");  // points at what the cast made
  builder.Step("Neg", {"x"}, "a");
  builder.Step("Mul", {"a", "a"}, "b");
  Cast(builder, "b", "more", proto::BYTES);
  builder.Step("Gather", {"more", "i"}, "more_two");
  ModelBuilder::Set(builder.Step("Concat", {"two", "more_two"}, "y"), "axis", std::int64_t{0});
  builder.Output("y", {4}, proto::BYTES);
  std::vector<std::int64_t> x;
  for (std::int64_t i = 0; i < 64; ++i) x.push_back(i);
  const auto result = RunModel(builder, {Raw(x), Raw({3, 63})});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(UnpackTexts(result->data[0]), ElementsAre("3", "63", "9", "3969"));
}

TEST(PlanTexts, ComparesAndChooses) {
  ModelBuilder builder(18);
  builder.Input("x", {2, 1}, proto::BYTES);
  builder.Step("Equal", {"x", TextWeight(builder, {2}, {"a", ""})}, "equal");
  builder.Step("Where", {"equal", "x", TextWeight(builder, {1}, {"no"})}, "y");
  builder.Output("equal", {2, 2}, proto::BOOL);
  builder.Output("y", {2, 2}, proto::BYTES);
  const auto result = RunModel(builder, {PackTexts({"a", ""})});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<std::uint8_t>(0), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(UnpackTexts(result->data[1]), ElementsAre("a", "no", "no", ""));
}

TEST(PlanTexts, CastsAsOnnxruntimeDoes) {
  ModelBuilder builder;
  builder.Input("x", {11});
  Cast(builder, "x", "texts", proto::BYTES);
  Cast(builder, "texts", "again", proto::FP32);
  builder.Output("texts", {11}, proto::BYTES);
  builder.Output("again", {11});
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {
      0, 1, -1.5F, 1.0F / 3, 1e10F, 1e-7F, 123456789.0F, 16777216, std::nanf(""), kInfinity, -kInfinity};
  const auto bytes = std::as_bytes(std::span(x));
  const auto result = RunModel(builder, {{bytes.begin(), bytes.end()}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(UnpackTexts(result->data[0]), ElementsAre("0", "1", "-1.5", "0.33333334", "1e+10", "1e-07",
                                                        "1.2345679e+08", "16777216", "NaN", "INF", "-INF"));
  const auto again = result->As<float>(1);
  EXPECT_EQ(again[3], x[3]);
  EXPECT_TRUE(std::isnan(again[8]));
  EXPECT_EQ(again[10], -kInfinity);
}

std::string CastError(const std::string& text, proto::DataType type) {
  ModelBuilder builder;
  builder.Input("x", {1}, proto::BYTES);
  Cast(builder, "x", "y", type);
  builder.Output("y", {1}, type);
  return WhyNot(builder, {PackTexts({text})});
}

TEST(PlanTexts, ATextThatIsNoNumberIsRefused) {
  EXPECT_THAT(CastError("12 apples", proto::INT32),
              HasSubstr("text 0 is '12 apples', which is not a number that INT32"));
  for (const char* text : {"", "0x10", "2147483648", "-2147483649", "nan", "1e40", "--1"})
    EXPECT_THAT(CastError(text, proto::INT32), HasSubstr("not a number")) << text;
  for (const char* text : {"", "1,5", "abc"})
    EXPECT_THAT(CastError(text, proto::FP32), HasSubstr("not a number")) << text;
  for (const char* text : {"3.9", "-1e3", "2147483647"})
    EXPECT_EQ(CastError(text, proto::INT32), "accepted") << text;
}

TEST(PlanTexts, TextsThatBecomeMoreThanTheirTensorMayHaveAreRefused) {
  ModelBuilder builder;
  builder.Input("x", {1}, proto::BYTES);
  builder.Step("Tile", {"x", builder.Ints({100})}, "y");
  builder.Output("y", {100}, proto::BYTES);
  auto specs = builder.input_specs();
  specs[0].set_text_bytes(1 << 20);
  auto plan = Plan::Build(builder.model(), builder.weights(), specs, 1);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->output_bytes(0), kMaxTextBytes);
  const auto small = RunPlan(**plan, builder.weights(), {PackTexts({std::string(100'000, 'a')})});
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ(small->data[0].size(), 100 * 100'004U);
  const auto large = RunPlan(**plan, builder.weights(), {PackTexts({std::string(1'000'000, 'a')})});
  EXPECT_EQ(large.status().code(), absl::StatusCode::kInvalidArgument) << large.status();
  EXPECT_THAT(large.status().message(), HasSubstr("output 'y': its texts take more than"));
}

TEST(PlanTexts, MoreTextsThanCanBeTakenAreRefusedWhenThePlanIsMade) {
  ModelBuilder builder;
  builder.Input("x", {std::int64_t{1} << 30}, proto::BYTES);
  builder.Step("Identity", {"x"}, "y");
  builder.Output("y", {std::int64_t{1} << 30}, proto::BYTES);
  const auto plan = BuildPlan(builder);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(plan.status().message(), HasSubstr("input 'x' has 1073741824 texts"));
}

TEST(PlanTexts, WeightsOfTextsAreChecked) {
  const auto refusal = [](const Shape& shape, std::vector<std::byte> bytes) {
    ModelBuilder builder;
    builder.Step("Identity", {builder.Weight(proto::BYTES, shape, bytes)}, "y");
    builder.Output("y", shape, proto::BYTES);
    return WhyNot(builder, {});
  };
  EXPECT_EQ(refusal({2}, PackTexts({"a", "b"})), "accepted");
  EXPECT_THAT(refusal({3}, PackTexts({"a", "b"})),
              HasSubstr("weight 'w1': has 10 bytes, too few for 3 texts"));
  EXPECT_THAT(refusal({1}, PackTexts({"a", "b"})), HasSubstr("5 bytes are left after its 1 texts"));
  auto bytes = PackTexts({"a", "b"});
  bytes[3] = std::byte{0x40};
  EXPECT_THAT(refusal({2}, bytes), HasSubstr("text 0 says it has 1073741825 bytes"));
}

TEST(PlanTexts, SubgraphsHandOnNoTexts) {
  ModelBuilder builder(18);
  builder.Input("c", {}, proto::BOOL);
  builder.Input("x", {1}, proto::BYTES);
  proto::Step& branch = builder.Step("If", {"c", "x"}, "y");
  for (int i = 0; i < 2; ++i) {
    proto::Subgraph& inside = *branch.add_subgraphs();
    proto::Subgraph::Capture& capture = *inside.add_captures();
    capture.set_name("x");
    capture.set_input(1);
    proto::Step& step = *inside.add_steps();
    step.set_op("Identity");
    step.add_inputs("x");
    step.add_outputs("inner");
    inside.add_outputs("inner");
  }
  builder.Output("y", {1}, proto::BYTES);
  EXPECT_THAT(WhyNot(builder, {{std::byte{1}}, PackTexts({"a"})}),
              HasSubstr("has texts (BYTES), which If, Loop and Scan"));
}

TEST(PlanTexts, ADeviceWithKernelsOfItsOwnRefusesThemByName) {
  const auto refusal = [](ModelBuilder& builder) {
    ProgramBuilder program(builder.model(), builder.weights());
    program.MakeWith([](const Operator&, const StepContext&, std::span<const ValueInfo>,
                        std::span<const ValueInfo>) -> absl::StatusOr<std::unique_ptr<Kernel>> {
      return absl::InternalError("was asked for a kernel");
    });
    return std::string(program.Build(builder.input_specs()).status().message());
  };
  ModelBuilder reads;
  AddSums(reads, {1, 3});
  EXPECT_THAT(refusal(reads), HasSubstr("input 'INPUT0' has texts (BYTES), which real GPUs do not compute"));
  ModelBuilder makes;
  makes.Input("x", {2});
  Cast(makes, "x", "y", proto::BYTES);
  makes.Output("y", {2}, proto::BYTES);
  EXPECT_THAT(refusal(makes), HasSubstr("Cast 'step1' has texts (BYTES)"));
}

}  // namespace
}  // namespace troupe::gpu

// If, Loop and Scan: what is decided before the run, what by it, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/engine/control_steps.hpp"
#include "gpu/ops/control_flow.hpp"
#include "tests/unit/gpu_engine/model_builder.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu::control_flow {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

template <class T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}
const std::vector<std::uint8_t> kYes = {1};
const std::vector<std::uint8_t> kNo = {0};

// Fills a subgraph, one step for each call.
class Inside {
 public:
  explicit Inside(proto::Subgraph& subgraph) : subgraph_(subgraph) {}
  Inside& Input(const std::string& name) {
    subgraph_.add_inputs(name);
    return *this;
  }
  Inside& Capture(const std::string& name, std::uint32_t input) {
    auto& capture = *subgraph_.add_captures();
    capture.set_name(name);
    capture.set_input(input);
    return *this;
  }
  proto::Step& Step(const std::string& op, std::initializer_list<std::string> inputs,
                    std::initializer_list<std::string> outputs) {
    proto::Step& step = *subgraph_.add_steps();
    step.set_op(op);
    step.set_name(op + std::to_string(subgraph_.steps_size()));
    for (const std::string& input : inputs) step.add_inputs(input);
    for (const std::string& output : outputs) step.add_outputs(output);
    return step;
  }
  Inside& Output(const std::string& name) {
    subgraph_.add_outputs(name);
    return *this;
  }

 private:
  proto::Subgraph& subgraph_;
};

absl::StatusOr<std::unique_ptr<Plan>> Build(ModelBuilder& builder) {
  return Plan::Build(builder.model(), builder.weights(), builder.input_specs(), 1);
}

std::string Refusal(ModelBuilder& builder) {
  const auto plan = Build(builder);
  return plan.ok() ? "accepted" : std::string(plan.status().message());
}

using Inputs = std::vector<std::span<const std::byte>>;

absl::StatusOr<PlanResult> Answer(ModelBuilder& builder, const Inputs& inputs) {
  TROUPE_ASSIGN_OR_RETURN(const auto plan, Build(builder));
  return RunPlan(*plan, builder.weights(), inputs);
}

// y = If(c, Relu(x) + w, -x)
proto::Step& AddIf(ModelBuilder& builder, const std::string& condition) {
  const std::string w = builder.Floats({2}, {10, 20});
  proto::Step& choose = builder.Step("If", {condition, "x", w}, "y");
  Inside then(*choose.add_subgraphs());
  then.Capture("a", 1).Capture("b", 2);
  then.Step("Relu", {"a"}, {"r"});
  then.Step("Add", {"r", "b"}, {"out"});
  then.Output("out");
  Inside otherwise(*choose.add_subgraphs());
  otherwise.Capture("a", 1);
  otherwise.Step("Neg", {"a"}, {"out"});
  otherwise.Output("out");
  return choose;
}

TEST(If, TheRunChoosesABranch) {
  ModelBuilder builder;
  builder.Input("c", {}, proto::BOOL);
  builder.Input("x", {2});
  AddIf(builder, "c");
  builder.Output("y");
  const auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->step_count(), 1U);
  EXPECT_THAT((*plan)->step_weights(0).ranges, ElementsAre(std::pair(0U, 8U)));  // of either branch
  const std::vector<float> x = {3, -4};
  for (int round = 0; round < 2; ++round) {
    auto result = RunPlan(**plan, builder.weights(), {BytesOf(kYes), BytesOf(x)});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->As<float>(0), ElementsAre(13, 20));
    result = RunPlan(**plan, builder.weights(), {BytesOf(kNo), BytesOf(x)});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->As<float>(0), ElementsAre(-3, 4));
  }
}

TEST(If, AConditionThatIsKnownLeavesOneBranch) {
  ModelBuilder builder;
  builder.Input("x", {2});
  builder.Step("Shape", {"x"}, "shape");
  builder.Step("Equal", {"shape", builder.Ints({2})}, "c");
  AddIf(builder, "c");
  builder.Output("y");
  const auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->step_count(), 2U);  // Relu and Add
  const std::vector<float> x = {3, -4};
  const auto result = RunPlan(**plan, builder.weights(), {BytesOf(x)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<float>(0), ElementsAre(13, 20));
}

TEST(If, BranchesOfOtherSizesHaveTheShapeOfTheOneThatRan) {
  ModelBuilder builder;
  builder.Input("c", {1}, proto::BOOL);
  builder.Input("x", {3});
  proto::Step& choose = builder.Step("If", {"c", "x"}, "z");
  Inside(*choose.add_subgraphs()).Capture("a", 1).Output("a");
  Inside otherwise(*choose.add_subgraphs());
  otherwise.Capture("a", 1);
  ModelBuilder::Set(otherwise.Step("Concat", {"a", "a"}, {"twice"}), "axis", std::int64_t{0});
  otherwise.Output("twice");
  builder.Step("Neg", {"z"}, "y");
  builder.Output("y");
  const auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT((*plan)->outputs()[0].shape(), ElementsAre(6));
  const std::vector<float> x = {1, 2, 3};
  auto result = RunPlan(**plan, {}, {BytesOf(kYes), BytesOf(x)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->specs[0].shape(), ElementsAre(3));
  EXPECT_THAT(result->As<float>(0), ElementsAre(-1, -2, -3));
  result = RunPlan(**plan, {}, {BytesOf(kNo), BytesOf(x)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<float>(0), ElementsAre(-1, -2, -3, -1, -2, -3));
}

TEST(If, BranchesThatCannotBeOneValueAreRefused) {
  ModelBuilder builder;
  builder.Input("c", {}, proto::BOOL);
  builder.Input("x", {2});
  proto::Step& choose = AddIf(builder, "c");
  builder.Output("y");
  proto::Step& last = *choose.mutable_subgraphs(1)->mutable_steps(0);
  last.set_op("Shape");
  EXPECT_THAT(Refusal(builder),
              HasSubstr("If 'step1': makes FP32[2] in one branch and INT64[1] in the other"));
  last.set_op("Neg");
  choose.mutable_subgraphs(1)->mutable_captures(0)->set_input(7);
  EXPECT_THAT(Refusal(builder), HasSubstr("captures 'a' from its input 7"));
  choose.mutable_subgraphs(1)->mutable_captures(0)->set_input(0);
  EXPECT_THAT(Refusal(builder), HasSubstr("Neg 'Neg1'"));
}

// Carries s and adds x to it; gathers twice s. The body's condition is s[0] < limit.
struct Sum {
  explicit Sum(proto::Step& loop, std::uint32_t x = 3, std::uint32_t limit = 4)
      : body(*loop.add_subgraphs()) {
    body.Input("i").Input("c").Input("s").Capture("x", x).Capture("limit", limit);
    body.Step("Add", {"s", "x"}, {"next"});
    body.Step("Add", {"next", "next"}, {"twice"});
    ModelBuilder::Set(body.Step("ReduceMax", {"next"}, {"top"}), "keepdims", std::int64_t{0});
    body.Step("Less", {"top", "limit"}, {"on"});
    body.Output("on").Output("next").Output("twice");
    loop.add_outputs("gathered");
  }
  Inside body;
};

class LoopTest : public testing::Test {
 protected:
  // `most`: an input of the model, or the trip count.
  void Make(std::optional<std::int64_t> most) {
    builder.Input("s", {2});
    builder.Input("x", {2});
    builder.Input("limit", {});
    std::string trips = "most";
    if (most)
      trips = builder.Ints({*most});
    else
      builder.Input("most", {}, proto::INT64);
    proto::Step& loop = builder.Step("Loop", {trips, "", "s", "x", "limit"}, "y");
    Sum sum(loop);
    builder.Output("y");
    if (most)
      builder.Output("gathered");
    else
      loop.set_outputs(1, "");
  }
  Inputs Given(float limit) {
    limit_ = {limit};
    return {BytesOf(s_), BytesOf(x_), BytesOf(limit_)};
  }
  ModelBuilder builder;

 private:
  std::vector<float> s_ = {0, 100};
  std::vector<float> x_ = {1, -1};
  std::vector<float> limit_;
};

TEST_F(LoopTest, TheConditionEndsIt) {
  Make(5);
  const auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT((*plan)->outputs()[1].shape(), ElementsAre(5, 2));
  auto result = RunPlan(**plan, builder.weights(), Given(99.5F));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<float>(0),
              ElementsAre(5, 95));  // the largest is below the limit from the first trip on
  EXPECT_THAT(result->specs[1].shape(), ElementsAre(5, 2));
  EXPECT_THAT(result->As<float>(1), ElementsAre(2, 198, 4, 196, 6, 194, 8, 192, 10, 190));
  result = RunPlan(**plan, builder.weights(), Given(98.5F));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<float>(0), ElementsAre(1, 99));
  EXPECT_THAT(result->specs[1].shape(), ElementsAre(1, 2));
  EXPECT_THAT(result->As<float>(1), ElementsAre(2, 198));
}

TEST_F(LoopTest, TheRunCountsTheTrips) {
  Make(std::nullopt);
  const auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const std::int64_t trips : {3, 0, -7, 4}) {
    const std::vector<std::int64_t> most = {trips};
    Inputs inputs = Given(1000);
    inputs.push_back(BytesOf(most));
    const auto result = RunPlan(**plan, builder.weights(), inputs);
    ASSERT_TRUE(result.ok()) << result.status();
    const auto sum = static_cast<float>(std::max<std::int64_t>(trips, 0));
    EXPECT_THAT(result->As<float>(0), ElementsAre(sum, 100 - sum)) << trips;
  }
}

TEST_F(LoopTest, NoTripGivesTheInitialValueAndNoParts) {
  Make(0);
  const auto result = Answer(builder, Given(1000));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<float>(0), ElementsAre(0, 100));
  EXPECT_THAT(result->specs[1].shape(), ElementsAre(0, 2));
  EXPECT_THAT(result->data[1], IsEmpty());
}

TEST_F(LoopTest, TheLimitOfTripsIsAnErrorAndNoResult) {
  Make(std::nullopt);
  const std::vector<std::int64_t> most = {std::int64_t{1} << 62};
  Inputs inputs = Given(std::numeric_limits<float>::infinity());
  inputs.push_back(BytesOf(most));
  const auto result = Answer(builder, inputs);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(result.status().message(), HasSubstr("Loop 'step1': it went round 100000 times"));
}

TEST_F(LoopTest, ARunIsCutInsideIt) {
  Make(std::nullopt);
  const auto plan = Build(builder);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<std::int64_t> most = {kMaxTrips};
  Inputs inputs = Given(1000);
  inputs.push_back(BytesOf(most));
  int asked = 0;
  const auto result = RunPlan(**plan, builder.weights(), inputs, [&](std::size_t step) {
    EXPECT_EQ(step, 0U);
    return ++asked < 50 ? absl::OkStatus() : absl::DeadlineExceededError("cut");
  });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(asked, 50);
}

TEST_F(LoopTest, PartsOfAnUnknownNumberAreRefused) {
  Make(std::nullopt);
  builder.model().mutable_steps(0)->set_outputs(1, "gathered");
  EXPECT_THAT(Refusal(builder),
              HasSubstr("Loop 'step1': gathers 'gathered' in each trip: its trip count must be known"));
}

TEST_F(LoopTest, PartsOfTooManyTripsAreRefused) {
  Make(std::int64_t{1} << 62);
  EXPECT_THAT(Refusal(builder), HasSubstr("must be known when the plan is made, and be at most 100000"));
}

TEST(Loop, WhatNeverEndsIsRefused) {
  for (const bool counted : {false, true}) {
    ModelBuilder builder;
    builder.Input("x", {2});
    const std::string most = counted ? builder.Ints({kMaxTrips + 1}) : "";
    proto::Step& loop = builder.Step("Loop", {most, "", "x"}, "y");
    Inside body(*loop.add_subgraphs());
    body.Input("i").Input("c").Input("v");
    body.Step("Neg", {"v"}, {"w"});
    body.Output("c").Output("w");  // a trip's condition is true
    builder.Output("y");
    EXPECT_THAT(Refusal(builder), HasSubstr(counted ? "goes round 100001 times" : "goes round without end"));
  }
}

// v -> v, v
proto::Step& AddGrowing(ModelBuilder& builder, const std::string& most) {
  builder.Input("x", {1});
  proto::Step& loop = builder.Step("Loop", {most, "", "x"}, "y");
  loop.add_outputs("sizes");
  Inside body(*loop.add_subgraphs());
  body.Input("i").Input("c").Input("v");
  ModelBuilder::Set(body.Step("Concat", {"v", "v"}, {"w"}), "axis", std::int64_t{0});
  body.Step("Shape", {"w"}, {"size"});
  body.Output("c").Output("w").Output("size");
  builder.Output("y");
  return loop;
}

TEST(Loop, WhatGrowsInEachTripIsRefused) {
  ModelBuilder builder;
  builder.Input("most", {}, proto::INT64);
  proto::Step& loop = AddGrowing(builder, "most");
  loop.set_outputs(1, "");
  EXPECT_THAT(Refusal(builder), HasSubstr("Loop 'step1': carries 'v', which is larger after each trip"));
  loop.mutable_subgraphs(0)->set_outputs(1, "size");
  EXPECT_THAT(Refusal(builder), HasSubstr("carries 'v' as FP32[1] into a trip and as INT64[1] out of it"));
}

TEST(Loop, WhatGrowsInEachOfAFewTripsIsUnrolled) {
  ModelBuilder builder;
  AddGrowing(builder, builder.Ints({3}));
  builder.Output("sizes");
  const std::vector<float> x = {7};
  const auto result = Answer(builder, {BytesOf(x)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<float>(0), testing::Each(7));
  EXPECT_THAT(result->specs[0].shape(), ElementsAre(8));
  EXPECT_THAT(result->specs[1].shape(), ElementsAre(3, 1));
  EXPECT_THAT(result->As<std::int64_t>(1), ElementsAre(2, 4, 8));
}

// The sum begins as one zero, and is broadcast in the first trip.
TEST(Loop, WhatGrowsOnceIsCarried) {
  ModelBuilder builder;
  builder.Input("x", {3});
  builder.Input("most", {1}, proto::INT64);
  proto::Step& loop = builder.Step("Loop", {"most", "", builder.Floats({1}, {0}), "x"}, "y");
  Inside body(*loop.add_subgraphs());
  body.Input("i").Input("c").Input("v").Capture("x", 3);
  body.Step("Add", {"v", "x"}, {"w"});
  body.Output("c").Output("w");
  builder.Output("y");
  const std::vector<float> x = {1, 2, 3};
  const std::vector<std::int64_t> two = {2}, none = {0};
  auto result = Answer(builder, {BytesOf(x), BytesOf(two)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<float>(0), ElementsAre(2, 4, 6));
  result = Answer(builder, {BytesOf(x), BytesOf(none)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->specs[0].shape(), ElementsAre(1));
  EXPECT_THAT(result->As<float>(0), ElementsAre(0));
}

TEST(Loop, TwoValuesMaySwapPlaces) {
  ModelBuilder builder;
  builder.Input("a", {2});
  builder.Input("b", {2});
  proto::Step& loop = builder.Step("Loop", {builder.Ints({3}), "", "a", "b"}, "first");
  loop.add_outputs("second");
  Inside body(*loop.add_subgraphs());
  body.Input("i").Input("c").Input("p").Input("q").Output("c").Output("q").Output("p");
  builder.Output("first");
  builder.Output("second");
  const std::vector<float> a = {1, 2}, b = {3, 4};
  const auto result = Answer(builder, {BytesOf(a), BytesOf(b)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<float>(0), ElementsAre(3, 4));
  EXPECT_THAT(result->As<float>(1), ElementsAre(1, 2));
}

constexpr std::int64_t kWidth = 16;
constexpr int kTrips = 5;

// h -> Tanh(x[i] * w + h * u), gathered: once as a loop, once as steps.
TEST(Loop, EqualsANetworkThatIsUnrolledByHand) {
  ModelBuilder looped, unrolled;
  std::string w, u;
  for (ModelBuilder* builder : {&looped, &unrolled}) {
    builder->Input("x", {kTrips, 2, kWidth});
    builder->Input("h", {2, kWidth});
    w = builder->Random({kWidth, kWidth});
    u = builder->Random({kWidth, kWidth});
  }
  const auto cell = [](auto&& add, const std::string& i, const std::string& h, const std::string& tag) {
    proto::Step& part = add("Gather", "x", i, tag + "part");
    ModelBuilder::Set(part, "axis", std::int64_t{0});
    add("MatMul", tag + "part", "w", tag + "a");
    add("MatMul", h, "u", tag + "b");
    add("Add", tag + "a", tag + "b", tag + "sum");
    add("Tanh", tag + "sum", "", tag + "h");
  };
  proto::Step& loop = looped.Step("Loop", {looped.Ints({kTrips}), "", "h", "x", w, u}, "last");
  loop.add_outputs("all");
  Inside body(*loop.add_subgraphs());
  body.Input("i").Input("c").Input("h").Capture("x", 3).Capture("w", 4).Capture("u", 5);
  cell(
      [&](const std::string& op, const std::string& a, const std::string& b,
          const std::string& out) -> proto::Step& {
        proto::Step& step = body.Step(op, {a}, {out});
        if (!b.empty()) step.add_inputs(b);
        return step;
      },
      "i", "h", "next/");
  body.Output("c").Output("next/h").Output("next/h");
  looped.Output("last");
  looped.Output("all");

  std::string h = "h";
  proto::Step* concat = nullptr;
  std::vector<std::string> rows;
  for (int trip = 0; trip < kTrips; ++trip) {
    const std::string tag = std::to_string(trip) + "/";
    const std::string index = unrolled.Weight(proto::INT64, {}, std::vector<std::int64_t>{trip});
    cell(
        [&](const std::string& op, const std::string& a, const std::string& b,
            const std::string& out) -> proto::Step& {
          proto::Step& step = unrolled.Step(op, {a}, out);
          if (!b.empty()) step.add_inputs(b == "w" ? w : b == "u" ? u : b);
          return step;
        },
        index, h, tag);
    h = tag + "h";
    unrolled.Step("Unsqueeze", {h, unrolled.Ints({0})}, tag + "row");
    rows.push_back(tag + "row");
  }
  concat = &unrolled.Step("Concat", {}, "all");
  for (const std::string& row : rows) concat->add_inputs(row);
  ModelBuilder::Set(*concat, "axis", std::int64_t{0});
  unrolled.Output(h);
  unrolled.Output("all");

  const std::vector<float> x = looped.RandomValues({kTrips, 2, kWidth});
  const std::vector<float> start = looped.RandomValues({2, kWidth});
  const auto have = Answer(looped, {BytesOf(x), BytesOf(start)});
  const auto want = Answer(unrolled, {BytesOf(x), BytesOf(start)});
  ASSERT_TRUE(have.ok()) << have.status();
  ASSERT_TRUE(want.ok()) << want.status();
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_THAT(have->specs[i].shape(), testing::ElementsAreArray(want->specs[i].shape()));
    EXPECT_THAT(have->As<float>(i), testing::Pointwise(testing::FloatNear(1e-5F), want->As<float>(i)));
  }
}

// A loop in a branch, in whose body a branch reads values of all graphs around it.
TEST(If, LoopsAndBranchesNest) {
  ModelBuilder builder;
  builder.Input("c", {}, proto::BOOL);
  builder.Input("x", {2});
  builder.Input("most", {}, proto::INT64);
  proto::Step& choose = builder.Step("If",
                                     {"c", "x", "most", builder.Floats({2}, {1, 2}),
                                      builder.Weight(proto::INT64, {}, std::vector<std::int64_t>{2})},
                                     "y");
  Inside then(*choose.add_subgraphs());
  then.Capture("x", 1).Capture("most", 2).Capture("w", 3).Capture("two", 4);
  proto::Step& loop = then.Step("Loop", {"most", "", "x", "w", "two"}, {"out"});
  then.Output("out");
  Inside(*choose.add_subgraphs()).Capture("x", 1).Output("x");
  builder.Output("y");
  Inside body(*loop.add_subgraphs());
  body.Input("i").Input("c").Input("v").Capture("w", 3).Capture("two", 4).Capture("start", 2);
  body.Step("Less", {"i", "two"}, {"early"});
  proto::Step& inner = body.Step("If", {"early", "v", "w", "start"}, {"next"});
  body.Output("c").Output("next");
  Inside add(*inner.add_subgraphs());
  add.Capture("v", 1).Capture("w", 2);
  add.Step("Add", {"v", "w"}, {"r"});
  add.Output("r");
  Inside subtract(*inner.add_subgraphs());
  subtract.Capture("v", 1).Capture("start", 3);
  subtract.Step("Sub", {"v", "start"}, {"r"});
  subtract.Output("r");

  const std::vector<float> x = {10, 20};
  const std::vector<std::int64_t> most = {3};
  auto result = Answer(builder, {BytesOf(kYes), BytesOf(x), BytesOf(most)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<float>(0), ElementsAre(2, 4));  // x + w + w - x
  result = Answer(builder, {BytesOf(kNo), BytesOf(x), BytesOf(most)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<float>(0), ElementsAre(10, 20));
}

// An If in an If in an If, each of which captures the condition and x.
std::string NestedRefusal(int depth, bool known) {
  ModelBuilder builder;
  builder.Input("c", {}, proto::BOOL);
  builder.Input("x", {2});
  const std::string condition = known ? builder.Weight(proto::BOOL, {}, std::vector<std::uint8_t>{1}) : "c";
  proto::Step* step = &builder.Step("If", {condition, "x"}, "y");
  builder.Output("y");
  for (int d = 0; d < depth; ++d) {
    Inside(*step->add_subgraphs()).Capture("c", 0).Capture("x", 1).Output("y");
    Inside(*step->add_subgraphs()).Capture("x", 1).Output("x");
    auto& steps = *step->mutable_subgraphs(0)->mutable_steps();
    proto::Step& inner = *steps.Add();
    inner.set_op(d + 1 < depth ? "If" : "Neg");
    if (d + 1 < depth) inner.add_inputs("c");
    inner.add_inputs("x");
    inner.add_outputs("y");
    step = &inner;
  }
  return Refusal(builder);
}

TEST(If, NestsToALimit) {
  for (const bool known : {false, true}) {
    EXPECT_EQ(NestedRefusal(kMaxSubgraphDepth, known), "accepted");
    EXPECT_THAT(NestedRefusal(kMaxSubgraphDepth + 1, known), HasSubstr("more than 8 deep"));
  }
}

// Each loop is planned again for each value that its own body makes bounded: without a budget that is exponential.
TEST(Loop, PlanningEndsForLoopsThatArePlannedAgainAndAgain) {
  ModelBuilder builder;
  builder.Input("x", {1});
  proto::Step* step = &builder.Step("Loop", {builder.Ints({2}), "", "x"}, "y");
  builder.Output("y");
  for (int depth = 0; depth < kMaxSubgraphDepth; ++depth) {
    Inside body(*step->add_subgraphs());
    body.Input("i").Input("c").Input("v");
    step = &body.Step("Loop", {"i", "", "v"}, {"inner"});
    ModelBuilder::Set(body.Step("Concat", {"inner", "inner"}, {"grown"}), "axis", std::int64_t{0});
    body.Output("c").Output("grown");
  }
  step->set_op("Neg");
  step->clear_inputs();
  step->add_inputs("v");
  EXPECT_NE(Refusal(builder), "accepted");
}

// state + part, gathered and carried.
proto::Step& AddScan(ModelBuilder& builder) {
  builder.Input("s", {2});
  builder.Input("x", {2, 3});
  proto::Step& scan = builder.Step("Scan", {"s", "x"}, "last");
  scan.add_outputs("sums");
  ModelBuilder::Set(scan, "num_scan_inputs", std::int64_t{1});
  Inside body(*scan.add_subgraphs());
  body.Input("state").Input("part");
  body.Step("Add", {"state", "part"}, {"next"});
  body.Output("next").Output("next");
  builder.Output("last");
  builder.Output("sums");
  return scan;
}

TEST(Scan, GoesAlongAnyAxisInBothDirections) {
  ModelBuilder builder;
  proto::Step& scan = AddScan(builder);
  ModelBuilder::Set(scan, "scan_input_axes", std::vector<std::int64_t>{-1});
  ModelBuilder::Set(scan, "scan_input_directions", std::vector<std::int64_t>{1});
  ModelBuilder::Set(scan, "scan_output_axes", std::vector<std::int64_t>{1});
  ModelBuilder::Set(scan, "scan_output_directions", std::vector<std::int64_t>{1});
  const std::vector<float> s = {0, 10}, x = {1, 2, 3, 4, 5, 6};
  const auto result = Answer(builder, {BytesOf(s), BytesOf(x)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->As<float>(0), ElementsAre(6, 25));
  EXPECT_THAT(result->specs[1].shape(), ElementsAre(2, 3));
  EXPECT_THAT(result->As<float>(1), ElementsAre(6, 5, 3, 25, 21, 16));
}

TEST(Scan, RefusesWhatDoesNotFit) {
  ModelBuilder builder;
  proto::Step& scan = AddScan(builder);
  EXPECT_THAT(Refusal(builder), HasSubstr("Add 'Add1'"));  // parts of three and a state of two
  ModelBuilder::Set(scan, "scan_input_axes", std::vector<std::int64_t>{2});
  EXPECT_THAT(Refusal(builder), HasSubstr("scan_input_axes with 2 for a tensor of 2 dimensions"));
  scan.mutable_attributes(0)->set_i(3);
  EXPECT_THAT(Refusal(builder), HasSubstr("body with 2 inputs, expected at least 3"));
  scan.mutable_attributes(0)->set_i(0);
  EXPECT_THAT(Refusal(builder), HasSubstr("no attribute num_scan_inputs"));
  builder.model().set_opset(8);
  EXPECT_THAT(Refusal(builder), HasSubstr("unsupported operators at opset 8: Scan"));
}

// What stands in a device's layout reaches a branch row by row.
TEST(If, ReadsWhatAConvolutionMade) {
  ModelBuilder builder;
  builder.Input("c", {}, proto::BOOL);
  builder.Input("x", {1, 16, 6, 6});
  proto::Step& conv = builder.Step("Conv", {"x", builder.Random({32, 16, 3, 3})}, "features");
  ModelBuilder::Set(conv, "kernel_shape", std::vector<std::int64_t>{3, 3});
  proto::Step& choose = builder.Step("If", {"c", "features"}, "y");
  Inside(*choose.add_subgraphs()).Capture("f", 1).Output("f");
  Inside otherwise(*choose.add_subgraphs());
  otherwise.Capture("f", 1);
  otherwise.Step("Neg", {"f"}, {"g"});
  otherwise.Output("g");
  builder.Output("y");
  builder.Output("features");
  const std::vector<float> x = builder.RandomValues({1, 16, 6, 6});
  for (const auto* c : {&kYes, &kNo}) {
    const auto packed = PackModel(builder.model(), builder.weights(), builder.input_specs());
    ASSERT_TRUE(packed.ok()) << packed.status();
    const auto plan = Plan::Build(packed->model, packed->weights, builder.input_specs(), 1);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const auto result = RunPlan(**plan, packed->weights, {BytesOf(*c), BytesOf(x)});
    ASSERT_TRUE(result.ok()) << result.status();
    std::vector<float> want = result->As<float>(1);
    for (float& value : want) value = c == &kYes ? value : -value;
    EXPECT_EQ(result->As<float>(0), want);
  }
}

// y = If(c, Conv(x, w), -Conv(x, w2)), where a second step outside may read w2.
ModelBuilder Convolutions(bool shared) {
  ModelBuilder builder;
  builder.Input("c", {}, proto::BOOL);
  builder.Input("x", {1, 16, 8, 8});
  const std::string w = builder.Random({16, 16, 3, 3}), other = builder.Random({16, 16, 3, 3});
  proto::Step& choose = builder.Step("If", {"c", "x", w, other}, "y");
  Inside then(*choose.add_subgraphs());
  then.Capture("a", 1).Capture("inner", 2);
  then.Step("Conv", {"a", "inner"}, {"r"});
  then.Output("r");
  Inside otherwise(*choose.add_subgraphs());
  otherwise.Capture("a", 1).Capture("inner", 3);
  otherwise.Step("Conv", {"a", "inner"}, {"p"});
  otherwise.Step("Neg", {"p"}, {"r"});
  otherwise.Output("r");
  builder.Output("y");
  if (!shared) return builder;
  builder.Step("Transpose", {other}, "turned");
  builder.Output("turned");
  return builder;
}

TEST(If, WeightsThatOneStepInsideReadsArePacked) {
  for (const bool shared : {false, true}) {
    ModelBuilder builder = Convolutions(shared);
    const auto packed = PackModel(builder.model(), builder.weights(), builder.input_specs());
    ASSERT_TRUE(packed.ok()) << packed.status();
    EXPECT_FALSE(packed->model.weights(0).layout().empty());
    EXPECT_EQ(packed->model.weights(1).layout().empty(), shared);
    const auto plain = Build(builder);
    const auto fast = Plan::Build(packed->model, packed->weights, builder.input_specs(), 1);
    ASSERT_TRUE(plain.ok()) << plain.status();
    ASSERT_TRUE(fast.ok()) << fast.status();
    const std::vector<float> x = builder.RandomValues({1, 16, 8, 8});
    for (const auto* c : {&kYes, &kNo}) {
      const auto want = RunPlan(**plain, builder.weights(), {BytesOf(*c), BytesOf(x)});
      const auto have = RunPlan(**fast, packed->weights, {BytesOf(*c), BytesOf(x)});
      ASSERT_TRUE(want.ok()) << want.status();
      ASSERT_TRUE(have.ok()) << have.status();
      EXPECT_THAT(have->As<float>(0), testing::Pointwise(testing::FloatNear(1e-4F), want->As<float>(0)));
    }
  }
}

TEST(InferControlStep, TellsWhatIsMadeWithoutKernels) {
  ModelBuilder builder;
  builder.Input("c", {}, proto::BOOL);
  builder.Input("x", {2});
  const proto::Step& choose = AddIf(builder, "c");
  ValueInfo condition, x;
  condition.type = proto::BOOL;
  x.type = proto::FP32;
  x.shape = {2};
  const std::vector<ValueInfo> in = {condition, x, x};
  const auto out = InferControlStep({choose, 13}, in);
  ASSERT_TRUE(out.ok()) << out.status();
  ASSERT_EQ(out->size(), 1U);
  EXPECT_EQ((*out)[0].shape, Shape{2});
  EXPECT_FALSE((*out)[0].bounded);
}

}  // namespace
}  // namespace troupe::gpu::control_flow

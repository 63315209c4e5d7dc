// Sequences and optionals in files: what stands for them where their tensors are known, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/gpu_import/imported.hpp"

namespace troupe::gpu::test::sequences {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kInt64 = onnx::TensorProto::INT64;

// x [3], y [3] and positions 0 to 2 and -1 as scalars.
OnnxBuilder TwoInputs(int opset = 13) {
  OnnxBuilder b(opset);
  b.Input("x", {3});
  b.Input("y", {3});
  for (const auto& [name, value] : std::initializer_list<std::pair<std::string, std::int64_t>>{
           {"zero", 0}, {"one", 1}, {"two", 2}, {"last", -1}})
    b.Ints(name, {value}).clear_dims();
  return b;
}

std::vector<float> Outcome(const OnnxBuilder& builder) {
  const auto imported = Import(builder);
  EXPECT_TRUE(imported.ok()) << imported.status();
  if (!imported.ok()) return {};
  for (const proto::Step& step : imported->model.steps())
    EXPECT_THAT(step.op(), testing::Not(HasSubstr("Sequence")));
  const std::vector<float> x = {1, 2, 3};
  const std::vector<float> y = {10, 20, 30};
  const auto answer = Answer(*imported, {BytesOf(x), BytesOf(y)});
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? *answer : std::vector<float>();
}

TEST(Sequences, TensorsArePutInTakenOutAndFoundAgain) {
  OnnxBuilder b = TwoInputs();
  b.Node("Neg", {"x"}, {"minus"});
  b.Node("SequenceEmpty", {}, {"none"});
  b.Node("SequenceInsert", {"none", "x"}, {"x1"});
  b.Node("SequenceInsert", {"x1", "y", "zero"}, {"yx"});
  b.Node("SequenceInsert", {"yx", "minus"}, {"yxm"});
  b.Node("Identity", {"yxm"}, {"same"});
  b.Node("SequenceErase", {"same", "one"}, {"ym"});
  b.Node("SequenceAt", {"ym", "zero"}, {"first"});
  b.Node("SequenceAt", {"ym", "last"}, {"second"});
  b.Node("Sub", {"first", "second"}, {"out"});
  b.Output("out", {3});
  EXPECT_THAT(Outcome(b), ElementsAre(11, 22, 33));
  b.graph().mutable_node(6)->mutable_input()->RemoveLast();  // the last one is erased
  EXPECT_THAT(Outcome(b), ElementsAre(9, 18, 27));           // y - x
}

TEST(Sequences, AreJoinedAlongAnOldAxisAndANewOne) {
  for (const int opset : {11, 13}) {
    OnnxBuilder b = TwoInputs(opset);
    b.Node("SequenceConstruct", {"x", "y", "x"}, {"list"});
    SetInt(b.Node("ConcatFromSequence", {"list"}, {"out"}), "axis", -1);
    b.Output("out", {9});
    EXPECT_THAT(Outcome(b), ElementsAre(1, 2, 3, 10, 20, 30, 1, 2, 3));
    SetInt(*b.graph().mutable_node(1), "new_axis", 1);
    b.graph().clear_output();
    b.Output("out", {3, 3});
    EXPECT_THAT(Outcome(b), ElementsAre(1, 10, 1, 2, 20, 2, 3, 30, 3));
  }
}

// How exporters write a split whose parts are asked for one by one.
TEST(Sequences, AreSplitByNumberBySizesAndOneByOne) {
  for (const int opset : {11, 13}) {
    OnnxBuilder b = TwoInputs(opset);
    b.Ints("sizes", {1, 2});
    b.Node("Add", {"x", "y"}, {"sum"});
    b.Node("SplitToSequence", {"sum", "two"}, {"pairs"});    // 2 and 1
    b.Node("SplitToSequence", {"sum", "sizes"}, {"sized"});  // 1 and 2
    b.Node("SplitToSequence", {"sum"}, {"kept"});
    SetInt(b.Node("SplitToSequence", {"sum"}, {"single"}), "keepdims", 0);
    b.Node("SequenceAt", {"pairs", "zero"}, {"two_of_them"});
    b.Node("SequenceAt", {"sized", "one"}, {"two_others"});
    b.Node("SequenceAt", {"kept", "one"}, {"middle"});
    b.Node("SequenceAt", {"single", "last"}, {"scalar"});
    b.Node("Add", {"two_of_them", "two_others"}, {"t"});
    b.Node("Add", {"t", "middle"}, {"u"});
    b.Node("Mul", {"u", "scalar"}, {"out"});
    b.Output("out", {2});
    // (11 + 22 + 22) * 33, (22 + 33 + 22) * 33
    EXPECT_THAT(Outcome(b), ElementsAre(1815, 2541));
  }
}

// The batch is the run's; what is split is not.
TEST(Sequences, AreSplitBesideADynamicDimension) {
  OnnxBuilder b;
  b.Input("x", {-1, 3});
  b.Ints("one", {1}).clear_dims();
  auto& split = b.Node("SplitToSequence", {"x"}, {"columns"});
  SetInt(split, "axis", -1);
  SetInt(split, "keepdims", 0);
  b.Node("SequenceAt", {"columns", "one"}, {"out"});
  b.Output("out", {-1});
  const auto imported = Import(b);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->model.outputs(0).shape(), ElementsAre(-1));
}

TEST(Sequences, ALengthMayChooseABranchThatMakesOne) {
  OnnxBuilder then, otherwise;
  then.Node("SequenceConstruct", {"x", "y"}, {"chosen"});
  then.Output("chosen", {});
  otherwise.Node("SequenceConstruct", {"y"}, {"chosen"});
  otherwise.Output("chosen", {});
  OnnxBuilder b = TwoInputs();
  SetInt(b.Node("SplitToSequence", {"x"}, {"list"}), "axis", 0);
  b.Node("SequenceLength", {"list"}, {"length"});
  b.Node("Greater", {"length", "two"}, {"many"});
  AddBranches(b.Node("If", {"many"}, {"either"}), then, otherwise);
  b.Node("SequenceLength", {"either"}, {"count"});
  SetInt(b.Node("Cast", {"count"}, {"number"}), "to", onnx::TensorProto::FLOAT);
  b.Node("SequenceAt", {"either", "zero"}, {"first"});
  b.Node("Mul", {"first", "number"}, {"out"});
  b.Output("out", {3});
  EXPECT_THAT(Outcome(b), ElementsAre(2, 4, 6));
}

TEST(Sequences, ALengthMayBeAnOutput) {
  OnnxBuilder b = TwoInputs();
  b.Node("SequenceConstruct", {"x", "y"}, {"list"});
  b.Node("SequenceLength", {"list"}, {"length"});
  b.Output("length", {}, kInt64);
  const auto imported = Import(b);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->model.outputs(0).type(), proto::INT64);
}

TEST(Sequences, AnOptionalIsWhatItHolds) {
  OnnxBuilder b = TwoInputs(18);
  b.Node("Optional", {"x"}, {"maybe"});
  b.Node("OptionalHasElement", {"maybe"}, {"has"});
  b.Node("OptionalGetElement", {"maybe"}, {"got"});
  b.Node("SequenceConstruct", {"got", "y"}, {"list"});
  b.Node("Optional", {"list"}, {"maybe_list"});
  b.Node("OptionalGetElement", {"maybe_list"}, {"list_again"});
  b.Node("SequenceAt", {"list_again", "one"}, {"second"});
  b.Node("Where", {"has", "second", "x"}, {"out"});
  b.Output("out", {3});
  EXPECT_THAT(Outcome(b), ElementsAre(10, 20, 30));
  b.graph().mutable_node(1)->clear_input();  // of none
  EXPECT_THAT(Outcome(b), ElementsAre(1, 2, 3));
}

TEST(Sequences, WhatOnlyARunKnowsIsRefused) {
  OnnxBuilder b = TwoInputs();
  b.Input("where", {}, kInt64);
  b.Node("SequenceConstruct", {"x", "y"}, {"list"});
  b.Node("SequenceAt", {"list", "where"}, {"out"}, "at");
  b.Output("out", {3});
  EXPECT_THAT(Refusal(b), HasSubstr("SequenceAt (1 node, 'at', whose sequence only a run knows)"));

  OnnxBuilder dynamic;
  dynamic.Input("x", {-1});
  dynamic.Ints("zero", {0}).clear_dims();
  dynamic.Node("SplitToSequence", {"x"}, {"list"}, "split");
  dynamic.Node("SequenceAt", {"list", "zero"}, {"out"});
  dynamic.Output("out", {1});
  EXPECT_THAT(Refusal(dynamic),
              HasSubstr("SplitToSequence (1 node, 'split', whose sequence only a run knows)"));
  // The sizes of its parts are told: the run's size has to fit them.
  dynamic.Ints("sizes", {1, 2});
  dynamic.graph().mutable_node(0)->add_input("sizes");
  EXPECT_EQ(Refusal(dynamic), "accepted");
}

TEST(Sequences, BadOnesAreRefusedByName) {
  const auto refusal = [](const std::string& op, std::initializer_list<std::string> inputs) {
    OnnxBuilder b = TwoInputs();
    b.Ints("far", {7}).clear_dims();
    b.Ints("many", {0, 1});
    b.Node("SequenceConstruct", {"x", "y"}, {"list"});
    b.Node("SequenceEmpty", {}, {"none"});
    SetInt(b.Node(op, inputs, {"out"}, "odd"), "axis", 0);
    b.Output("out", {3});
    return Refusal(b);
  };
  EXPECT_THAT(refusal("SequenceAt", {"list", "far"}),
              HasSubstr("SequenceAt 'odd': the position lies outside of a sequence of 2 tensors"));
  EXPECT_THAT(refusal("SequenceAt", {"none", "last"}), HasSubstr("of a sequence of 0 tensors"));
  EXPECT_THAT(refusal("SequenceErase", {"none"}), HasSubstr("of a sequence of 0 tensors"));
  EXPECT_THAT(refusal("SequenceAt", {"list", "many"}), HasSubstr("the position must be one number"));
  EXPECT_THAT(refusal("SequenceAt", {"list"}), HasSubstr("has no position"));
  EXPECT_THAT(refusal("SequenceInsert", {"list"}), HasSubstr("has no tensor to insert"));
  EXPECT_THAT(refusal("SequenceInsert", {"list", "", "zero"}), HasSubstr("has no name"));
  EXPECT_THAT(refusal("ConcatFromSequence", {"none"}), HasSubstr("joins a sequence of no tensors"));
  EXPECT_THAT(refusal("SplitToSequence", {"x", "zero"}), HasSubstr("parts of 0 elements"));
  EXPECT_THAT(refusal("SplitToSequence", {"x", "many"}), HasSubstr("Split"));         // 0 and 1 of 3
  EXPECT_THAT(refusal("SequenceConstruct", {"x", "y"}), Not(HasSubstr("accepted")));  // as an output
}

OnnxBuilder SplitOf(std::int64_t elements) {
  OnnxBuilder b;
  b.Input("x", {elements});
  b.Ints("zero", {0}).clear_dims();
  b.Node("SplitToSequence", {"x"}, {"list"}, "split");
  b.Node("SequenceAt", {"list", "zero"}, {"out"});
  b.Output("out", {1});
  return b;
}

TEST(Sequences, LongOnesAreRefusedBeforeTheyAreWritten) {
  EXPECT_THAT(Refusal(SplitOf(1 << 20)),
              HasSubstr("SplitToSequence 'split': the model's sequences have more than 65536 elements"));
}

TEST(Sequences, EachElementCountsOnce) {
  const auto imported = Import(SplitOf(40'000));
  EXPECT_TRUE(imported.ok()) << imported.status();
}

TEST(Sequences, NamesThatAreTakenAreRefused) {
  OnnxBuilder b = TwoInputs();
  b.Node("Neg", {"x"}, {"list/0"});
  b.Node("SplitToSequence", {"x"}, {"list"});
  b.Node("SequenceAt", {"list", "zero"}, {"first"});
  b.Node("Add", {"first", "list/0"}, {"out"});
  b.Output("out", {3});
  EXPECT_THAT(Refusal(b), HasSubstr("list/0"));
}

}  // namespace
}  // namespace troupe::gpu::test::sequences

#include "gpu/import/passes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/gpu_import/onnx_builder.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Graph GraphOf(const OnnxBuilder& builder) {
  const std::string file = builder.File();
  auto graph = ReadGraph(AsBytes(file), {});
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? *std::move(graph) : Graph();
}

ValueInfos ShapesOf(const Graph& graph) {
  auto shapes = InferShapes(graph);
  EXPECT_TRUE(shapes.ok()) << shapes.status();
  return shapes.ok() ? *std::move(shapes) : ValueInfos();
}

std::vector<std::string> Ops(const Graph& graph) {
  std::vector<std::string> ops;
  for (const proto::Step& step : graph.steps)
    ops.push_back(step.activation().empty() ? step.op() : step.op() + "+" + step.activation());
  return ops;
}

TEST(CheckOperators, ListsAllThatAreMissing) {
  OnnxBuilder b;
  b.Input("x", {2});
  b.Node("Frobnicate", {"x"}, {"a"}, "f1");
  b.Node("Frobnicate", {"a"}, {"b"}, "f2");
  b.Node("Relu", {"b"}, {"c"});
  b.Node("Rfft", {"c"}, {"y"}, "g").set_domain("com.microsoft");
  b.Output("y", {2});
  const absl::Status status = CheckOperators(GraphOf(b));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("Frobnicate (2 nodes, first 'f1')"));
  EXPECT_THAT(status.message(), HasSubstr("com.microsoft.Rfft (1 node, 'g')"));
  EXPECT_THAT(status.message(), testing::Not(HasSubstr("Relu")));
}

TEST(EliminateDeadSteps, KeepsWhatOutputsNeed) {
  OnnxBuilder b;
  b.Input("x", {1, 1, 4, 4});
  b.Weight("unused", {1}, {1});
  SetInts(b.Node("MaxPool", {"x"}, {"y", "indices"}), "kernel_shape", {2, 2});
  b.Node("Relu", {"x"}, {"dead"});
  b.Node("Relu", {"dead"}, {"deader"});
  b.Output("y", {1, 1, 3, 3});
  Graph graph = GraphOf(b);
  EliminateDeadSteps(graph);
  EXPECT_THAT(Ops(graph), ElementsAre("MaxPool"));
  EXPECT_EQ(graph.steps[0].outputs_size(), 1);
  EXPECT_TRUE(graph.constants.empty());
}

TEST(EliminateIdentities, RenamesThroughChains) {
  OnnxBuilder b;
  b.Input("x", {2});
  b.Node("Identity", {"x"}, {"a"});
  b.Node("Dropout", {"a"}, {"c"});
  b.Node("Relu", {"c"}, {"d"});
  b.Node("Identity", {"d"}, {"e"});
  b.Node("Identity", {"e"}, {"y"});
  b.Node("Neg", {"d"}, {"z"});
  b.Output("y", {2});
  b.Output("z", {2});
  Graph graph = GraphOf(b);
  EliminateIdentities(graph);
  ASSERT_THAT(Ops(graph), ElementsAre("Relu", "Neg"));
  EXPECT_EQ(graph.steps[0].inputs(0), "x");
  EXPECT_EQ(graph.steps[0].outputs(0), "y");
  EXPECT_EQ(graph.steps[1].inputs(0), "y");
}

TEST(EliminateIdentities, OutputsStillComeFromSteps) {
  OnnxBuilder b;
  b.Input("x", {2});
  b.Node("Dropout", {"x"}, {"y"});
  b.Node("Relu", {"x"}, {"r"});
  b.Node("Identity", {"r"}, {"z"});
  b.Output("y", {2});
  b.Output("r", {2});
  b.Output("z", {2});
  Graph graph = GraphOf(b);
  EliminateIdentities(graph);
  EXPECT_THAT(Ops(graph), ElementsAre("Identity", "Relu", "Identity"));
}

TEST(EliminateIdentities, TrainingDropoutStays) {
  OnnxBuilder b;
  b.Input("x", {2});
  b.Input("training", {}, onnx::TensorProto::BOOL);
  b.Node("Dropout", {"x", "", "training"}, {"a"});
  b.Node("Relu", {"a"}, {"y"});
  b.Output("y", {2});
  Graph graph = GraphOf(b);
  EliminateIdentities(graph);
  EXPECT_THAT(Ops(graph), ElementsAre("Dropout", "Relu"));
}

TEST(FoldConstants, ShapeArithmeticOfKnownShapes) {
  OnnxBuilder b;
  b.Input("x", {2, 3, 4});
  b.Node("Shape", {"x"}, {"s"});
  b.Ints("i", {0});
  b.Node("Gather", {"s", "i"}, {"n"});
  b.Ints("rest", {-1});
  SetInt(b.Node("Concat", {"n", "rest"}, {"target"}), "axis", 0);
  b.Node("Reshape", {"x", "target"}, {"y"});
  b.Output("y", {2, 12});
  Graph graph = GraphOf(b);
  ASSERT_TRUE(FoldConstants(graph, {}).ok());
  ASSERT_THAT(Ops(graph), ElementsAre("Reshape"));
  const std::int64_t want[] = {2, -1};
  EXPECT_EQ(*graph.constants.at("target").data,
            std::string(reinterpret_cast<const char*>(want), sizeof(want)));
  EXPECT_FALSE(graph.constants.contains("n"));
}

TEST(FoldConstants, DynamicShapesStay) {
  OnnxBuilder b;
  b.Input("x", {-1, 3});
  b.Node("Shape", {"x"}, {"s"});
  b.Node("Reshape", {"x", "s"}, {"y"});
  b.Output("y", {-1, 3});
  Graph graph = GraphOf(b);
  ASSERT_TRUE(FoldConstants(graph, {}).ok());
  EXPECT_THAT(Ops(graph), ElementsAre("Shape", "Reshape"));
}

TEST(FoldConstants, LargeResultsStaySteps) {
  OnnxBuilder b;
  b.Ints("s", {1024, 1024});
  b.Node("ConstantOfShape", {"s"}, {"k"});
  b.Input("x", {1024, 1024});
  b.Node("Add", {"x", "k"}, {"y"});
  b.Output("y", {1024, 1024});
  Graph graph = GraphOf(b);
  ImportOptions options;
  options.max_folded = MiB(1);
  ASSERT_TRUE(FoldConstants(graph, options).ok());
  EXPECT_THAT(Ops(graph), ElementsAre("ConstantOfShape", "Add"));
  ASSERT_TRUE(FoldConstants(graph, {}).ok());
  EXPECT_THAT(Ops(graph), ElementsAre("Add"));
  Graph again = GraphOf(b);
  options = {};
  options.max_weights = MiB(2);
  EXPECT_EQ(FoldConstants(again, options).code(), absl::StatusCode::kResourceExhausted);
}

TEST(InferShapes, SeparatesFixedFromDynamic) {
  OnnxBuilder b;
  b.Input("x", {-1, 6});
  b.Ints("target", {-1, 2, 3});
  b.Node("Reshape", {"x", "target"}, {"y"});
  b.Output("y", {});
  const ValueInfos shapes = ShapesOf(GraphOf(b));
  EXPECT_THAT(shapes.at("y").shape, ElementsAre(-1, 2, 3));
}

TEST(InferShapes, NamesTheStepThatIsWrong) {
  OnnxBuilder b;
  b.Input("x", {2, 3});
  b.Weight("w", {4}, {1, 2, 3, 4});
  b.Node("Add", {"x", "w"}, {"y"}, "sum");
  b.Output("y", {2, 3});
  EXPECT_THAT(InferShapes(GraphOf(b)).status().message(), HasSubstr("'sum'"));
}

TEST(InferShapes, NoBatchMakesABrokenModelWork) {
  OnnxBuilder broken;
  broken.Input("x", {-1, 3});
  broken.Weight("w", {4}, {1, 2, 3, 4});
  broken.Node("Add", {"x", "w"}, {"y"}, "sum");
  broken.Output("y", {-1, 3});
  EXPECT_THAT(InferShapes(GraphOf(broken)).status().message(), HasSubstr("'sum'"));

  OnnxBuilder eight;  // the network works only for a batch of 8, though its input says any
  eight.Input("x", {-1, 3});
  eight.Weight("w", {8, 3}, std::vector<float>(24, 1));
  eight.Node("Reshape", {"x", "shape"}, {"r"});
  eight.Ints("shape", {8, 3});
  eight.Node("Add", {"r", "w"}, {"y"});
  eight.Output("y", {-1, 3});
  EXPECT_TRUE(ShapesOf(GraphOf(eight)).empty());
}

// Conv of one input and two output channels, 1x1, then the steps that the test adds to value "c".
OnnxBuilder ConvFirst() {
  OnnxBuilder b;
  b.Input("x", {1, 1, 2, 2});
  b.Weight("w", {2, 1, 1, 1}, {2, 3});
  b.Weight("b", {2}, {1, -1});
  b.Node("Conv", {"x", "w", "b"}, {"c"}, "conv");
  b.Output("y", {1, 2, 2, 2});
  return b;
}

TEST(FoldAffine, BatchNormMulAndAddEndInTheConvolution) {
  OnnxBuilder b = ConvFirst();
  b.Weight("scale", {2}, {2, 4});
  b.Weight("bias", {2}, {0.5F, 0});
  b.Weight("mean", {2}, {1, 0});
  b.Weight("var", {2}, {4, 1});
  SetFloat(b.Node("BatchNormalization", {"c", "scale", "bias", "mean", "var"}, {"n"}), "epsilon", 0);
  b.Weight("m", {2, 1, 1}, {10, 1});
  b.Node("Mul", {"m", "n"}, {"p"});
  b.Weight("a", {1}, {7});
  b.Node("Add", {"p", "a"}, {"y"});
  Graph graph = GraphOf(b);
  FoldAffine(graph, ShapesOf(graph));
  ASSERT_THAT(Ops(graph), ElementsAre("Conv"));
  EXPECT_EQ(graph.steps[0].outputs(0), "y");
  // Channel 0: ((2x + 1) - 1) * 2 / 2 + 0.5 = 2x + 0.5, times 10, plus 7. Channel 1: (3x - 1) * 4, plus 7.
  EXPECT_THAT(FloatsOf(graph.constants.at(graph.steps[0].inputs(1))), ElementsAre(20, 12));
  EXPECT_THAT(FloatsOf(graph.constants.at(graph.steps[0].inputs(2))), ElementsAre(12, 3));
  EXPECT_THAT(FloatsOf(graph.constants.at("w")), ElementsAre(2, 3));
}

TEST(FoldAffine, IntoANormalisation) {
  OnnxBuilder b;
  b.Input("x", {1, 2, 2, 2});
  for (const char* name : {"scale", "bias", "mean", "var"}) b.Weight(name, {2}, {1, 2});
  b.Node("BatchNormalization", {"x", "scale", "bias", "mean", "var"}, {"n"});
  b.Weight("m", {1, 2, 1, 1}, {3, 5});
  b.Node("Mul", {"n", "m"}, {"p"});
  b.Weight("s", {}, {1});
  b.Node("Sub", {"p", "s"}, {"y"});
  b.Output("y", {1, 2, 2, 2});
  Graph graph = GraphOf(b);
  FoldAffine(graph, ShapesOf(graph));
  ASSERT_THAT(Ops(graph), ElementsAre("BatchNormalization"));
  EXPECT_THAT(FloatsOf(graph.constants.at(graph.steps[0].inputs(1))), ElementsAre(3, 10));
  EXPECT_THAT(FloatsOf(graph.constants.at(graph.steps[0].inputs(2))), ElementsAre(2, 9));
}

TEST(FoldAffine, LeavesWhatIsNoChannelScale) {
  struct Case {
    std::initializer_list<std::int64_t> shape;
    std::size_t count;
  };
  for (const Case& c : {Case{{2}, 2}, Case{{1, 1, 2}, 2}, Case{{2, 2, 2}, 8}, Case{{1, 1, 2, 1, 1}, 2}}) {
    OnnxBuilder b = ConvFirst();
    b.Weight("m", c.shape, std::vector<float>(c.count, 2));
    b.Node("Mul", {"c", "m"}, {"y"});
    Graph graph = GraphOf(b);
    FoldAffine(graph, ShapesOf(graph));
    EXPECT_THAT(Ops(graph), ElementsAre("Conv", "Mul"));
  }
}

TEST(FoldAffine, LeavesWhatOthersRead) {
  OnnxBuilder b = ConvFirst();
  b.Weight("m", {}, {2});
  b.Node("Mul", {"c", "m"}, {"y"});
  b.Output("c", {1, 2, 2, 2});
  Graph graph = GraphOf(b);
  FoldAffine(graph, ShapesOf(graph));
  EXPECT_THAT(Ops(graph), ElementsAre("Conv", "Mul"));
}

TEST(FoldAffine, LeavesWhatWouldNotBeFinite) {
  OnnxBuilder b = ConvFirst();
  b.Weight("zero", {}, {0});
  b.Node("Div", {"c", "zero"}, {"y"});
  Graph graph = GraphOf(b);
  FoldAffine(graph, ShapesOf(graph));
  EXPECT_THAT(Ops(graph), ElementsAre("Conv", "Div"));
}

TEST(FoldAffine, SharedWeightsAreNotTouched) {
  OnnxBuilder b = ConvFirst();
  b.Node("Conv", {"x", "w", "b"}, {"z"}, "other");
  b.Weight("m", {}, {2});
  b.Node("Mul", {"c", "m"}, {"y"});
  b.Output("z", {1, 2, 2, 2});
  Graph graph = GraphOf(b);
  FoldAffine(graph, ShapesOf(graph));
  ASSERT_THAT(Ops(graph), ElementsAre("Conv", "Conv"));
  EXPECT_EQ(graph.steps[1].inputs(1), "w");
  EXPECT_NE(graph.steps[0].inputs(1), "w");
}

TEST(FuseAddends, AVectorIntoAMatrixProduct) {
  OnnxBuilder b;
  b.Input("x", {-1, 2});
  b.Weight("w", {2, 3}, std::vector<float>(6, 1));
  b.Weight("b", {3}, {1, 2, 3});
  b.Node("MatMul", {"x", "w"}, {"m"});
  b.Node("Add", {"b", "m"}, {"y"});
  b.Output("y", {-1, 3});
  Graph graph = GraphOf(b);
  FuseAddends(graph, {});
  ASSERT_THAT(Ops(graph), ElementsAre("MatMul"));
  EXPECT_THAT(graph.steps[0].inputs(), ElementsAre("x", "w", "b"));
  EXPECT_EQ(graph.steps[0].outputs(0), "y");
}

TEST(FuseAddends, OtherVectorsStay) {
  for (const std::initializer_list<std::int64_t> shape :
       {std::initializer_list<std::int64_t>{1}, {3, 3}, {1, 3, 3}}) {
    OnnxBuilder b;
    b.Input("x", {3, 2});
    b.Weight("w", {2, 3}, std::vector<float>(6, 1));
    std::size_t count = 1;
    for (std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    b.Weight("b", shape, std::vector<float>(count, 1));
    b.Node("MatMul", {"x", "w"}, {"m"});
    b.Node("Add", {"m", "b"}, {"y"});
    b.Output("y", {3, 3});
    Graph graph = GraphOf(b);
    FuseAddends(graph, ShapesOf(graph));
    EXPECT_THAT(Ops(graph), ElementsAre("MatMul", "Add"));
  }
}

TEST(FuseAddends, AResidualIntoTheLaterConvolution) {
  OnnxBuilder b = ConvFirst();
  b.Node("Conv", {"x", "w"}, {"d"}, "second");
  b.Node("Relu", {"d"}, {"r"});
  b.Node("Conv", {"x", "w"}, {"e"}, "third");
  b.Node("Add", {"c", "e"}, {"s"});
  b.Node("Add", {"s", "r"}, {"y"});
  Graph graph = GraphOf(b);
  FuseAddends(graph, ShapesOf(graph));
  ASSERT_THAT(Ops(graph), ElementsAre("Conv", "Conv", "Relu", "Conv", "Add"));
  EXPECT_THAT(graph.steps[3].inputs(), ElementsAre("x", "w", "", "c"));
  EXPECT_EQ(graph.steps[3].outputs(0), "s");
}

TEST(FuseAddends, ResidualsOfAnotherOrUnknownShapeStay) {
  OnnxBuilder b = ConvFirst();
  b.Input("other", {1, 2, 1, 1});
  b.Node("Add", {"c", "other"}, {"y"});
  Graph graph = GraphOf(b);
  FuseAddends(graph, ShapesOf(graph));
  EXPECT_THAT(Ops(graph), ElementsAre("Conv", "Add"));
  FuseAddends(graph, {});
  EXPECT_THAT(Ops(graph), ElementsAre("Conv", "Add"));

  // Two dynamic dimensions that are equal only by chance.
  OnnxBuilder two;
  two.Input("x", {-1, 1, 2, 2});
  two.Input("z", {-1, 1, 2, 2});
  two.graph()
      .mutable_input(1)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->set_dim_param("M");
  two.Weight("w", {1, 1, 1, 1}, {2});
  two.Node("Conv", {"x", "w"}, {"c"});
  two.Node("Add", {"c", "z"}, {"y"});
  two.Output("y", {-1, 1, 2, 2});
  graph = GraphOf(two);
  FuseAddends(graph, ShapesOf(graph));
  EXPECT_THAT(Ops(graph), ElementsAre("Conv", "Add"));
}

TEST(FuseActivations, IntoTheStepBefore) {
  struct Case {
    const char* op;
    float alpha;
    int opset;
  };
  for (const Case& c : {Case{"Relu", 0, 13}, Case{"Sigmoid", 0, 13}, Case{"Tanh", 0, 13},
                        Case{"LeakyRelu", 0.01F, 13}, Case{"HardSwish", 0, 14}}) {
    OnnxBuilder b = ConvFirst();
    b.model.mutable_opset_import(0)->set_version(c.opset);
    b.Node(c.op, {"c"}, {"y"});
    Graph graph = GraphOf(b);
    FuseActivations(graph, {});
    ASSERT_THAT(Ops(graph), ElementsAre(std::string("Conv+") + c.op));
    EXPECT_EQ(graph.steps[0].outputs(0), "y");
    EXPECT_FLOAT_EQ(graph.steps[0].activation_alpha(), c.alpha);
  }
}

TEST(FuseActivations, ClipNeedsConstantBounds) {
  OnnxBuilder six = ConvFirst();
  six.Weight("lo", {}, {0});
  six.Weight("hi", {}, {6});
  six.Node("Clip", {"c", "lo", "hi"}, {"y"});
  Graph graph = GraphOf(six);
  FuseActivations(graph, {});
  ASSERT_THAT(Ops(graph), ElementsAre("Conv+Clip"));
  EXPECT_EQ(graph.steps[0].activation_beta(), 6);

  OnnxBuilder open = ConvFirst();
  open.Weight("hi", {}, {6});
  open.Node("Clip", {"c", "", "hi"}, {"y"});
  graph = GraphOf(open);
  FuseActivations(graph, {});
  ASSERT_THAT(Ops(graph), ElementsAre("Conv+Clip"));
  EXPECT_EQ(graph.steps[0].activation_alpha(), -INFINITY);

  OnnxBuilder dynamic = ConvFirst();
  dynamic.Input("hi", {});
  dynamic.Node("Clip", {"c", "", "hi"}, {"y"});
  graph = GraphOf(dynamic);
  FuseActivations(graph, {});
  EXPECT_THAT(Ops(graph), ElementsAre("Conv", "Clip"));
}

TEST(FuseActivations, OnlyOneAndOnlyForOneReader) {
  OnnxBuilder b = ConvFirst();
  b.Node("Relu", {"c"}, {"r"});
  b.Node("Tanh", {"r"}, {"y"});
  Graph graph = GraphOf(b);
  FuseActivations(graph, {});
  EXPECT_THAT(Ops(graph), ElementsAre("Conv+Relu", "Tanh"));

  OnnxBuilder read = ConvFirst();
  read.Node("Relu", {"c"}, {"y"});
  read.Node("Neg", {"c"}, {"z"});
  read.Output("z", {1, 2, 2, 2});
  graph = GraphOf(read);
  FuseActivations(graph, {});
  EXPECT_THAT(Ops(graph), ElementsAre("Conv", "Relu", "Neg"));
}

TEST(FuseActivations, IntegersAreLeftAlone) {
  OnnxBuilder b(14);
  b.Input("x", {2}, onnx::TensorProto::INT32);
  b.Node("Add", {"x", "x"}, {"s"});
  b.Node("Relu", {"s"}, {"y"});
  b.Output("y", {2}, onnx::TensorProto::INT32);
  Graph graph = GraphOf(b);
  FuseActivations(graph, ShapesOf(graph));
  EXPECT_THAT(Ops(graph), ElementsAre("Add", "Relu"));
}

TEST(FuseSwish, AProductWithItsOwnSigmoidJoinsTheStepBefore) {
  for (const bool sigmoid_first : {true, false}) {
    OnnxBuilder b;
    b.Input("x", {1, 2, 4, 4});
    b.Weight("w", {3, 2, 1, 1}, {1, 2, 3, 4, 5, 6});
    b.Node("Conv", {"x", "w"}, {"c"});
    b.Node("Sigmoid", {"c"}, {"s"});
    sigmoid_first ? b.Node("Mul", {"s", "c"}, {"y"}) : b.Node("Mul", {"c", "s"}, {"y"});
    b.Output("y", {1, 3, 4, 4});
    Graph graph = GraphOf(b);
    const ValueInfos shapes = ShapesOf(graph);
    FuseSwish(graph, shapes);
    EXPECT_THAT(Ops(graph), ElementsAre("Conv", "com.microsoft.QuickGelu"));
    FuseActivations(graph, shapes);
    ASSERT_THAT(Ops(graph), ElementsAre("Conv+com.microsoft.QuickGelu"));
    EXPECT_EQ(graph.steps[0].activation_alpha(), 1);
    EXPECT_EQ(graph.steps[0].outputs(0), "y");
  }
}

TEST(FuseSwish, LeavesOtherProductsAndWhatOthersRead) {
  OnnxBuilder b;
  b.Input("x", {4});
  b.Input("z", {4});
  b.Node("Sigmoid", {"x"}, {"s"});
  b.Node("Mul", {"z", "s"}, {"other"});
  b.Node("Mul", {"x", "s"}, {"own"});
  b.Output("other", {4});
  b.Output("own", {4});
  b.Output("s", {4});
  Graph graph = GraphOf(b);
  FuseSwish(graph, ShapesOf(graph));
  EXPECT_THAT(Ops(graph), ElementsAre("Sigmoid", "Mul", "com.microsoft.QuickGelu"));
  OnnxBuilder half;
  half.Input("x", {4}, onnx::TensorProto::FLOAT16);
  half.Node("Sigmoid", {"x"}, {"s"});
  half.Node("Mul", {"x", "s"}, {"y"});
  half.Output("y", {4}, onnx::TensorProto::FLOAT16);
  Graph halves = GraphOf(half);
  FuseSwish(halves, ShapesOf(halves));
  EXPECT_THAT(Ops(halves), ElementsAre("Sigmoid", "Mul"));
  FuseSwish(graph = GraphOf(b), {});
  EXPECT_THAT(Ops(graph), ElementsAre("Sigmoid", "Mul", "Mul")) << "nothing is known of the types";
}

TEST(RecordOutputs, TypesMustAgree) {
  OnnxBuilder b;
  b.Input("x", {2, 3});
  b.Node("Shape", {"x"}, {"y"});
  b.Output("y", {2});
  Graph graph = GraphOf(b);
  EXPECT_THAT(RecordOutputs(graph, ShapesOf(graph)).message(), HasSubstr("'y'"));
}

TEST(RecordOutputs, ShapesThatTheFileDoesNotTell) {
  OnnxBuilder b;
  b.Input("x", {-1, 3});
  b.Node("Relu", {"x"}, {"y"});
  b.Output("y", {}).mutable_type()->mutable_tensor_type()->clear_shape();
  Graph graph = GraphOf(b);
  ASSERT_TRUE(RecordOutputs(graph, ShapesOf(graph)).ok());
  EXPECT_THAT(graph.outputs[0].shape(), ElementsAre(-1, 3));
  graph.outputs[0].clear_shape();
  ASSERT_TRUE(RecordOutputs(graph, {}).ok());
  EXPECT_THAT(graph.outputs[0].shape(), ElementsAre(-1, -1));
}

}  // namespace
}  // namespace troupe::gpu::test

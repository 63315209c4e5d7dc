#include "gpu/import/functions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/import/import_model.hpp"
#include "tests/unit/gpu_import/onnx_builder.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

onnx::NodeProto& AddNode(onnx::FunctionProto& function, const std::string& op,
                         const std::vector<std::string>& inputs, const std::string& output,
                         const std::string& domain = "") {
  onnx::NodeProto& node = *function.add_node();
  node.set_op_type(op);
  node.set_domain(domain);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

onnx::FunctionProto& AddFunction(OnnxBuilder& b, const std::string& name,
                                 const std::vector<std::string>& inputs,
                                 const std::vector<std::string>& outputs) {
  onnx::FunctionProto& function = *b.model.add_functions();
  function.set_domain("pkg");
  function.set_name(name);
  for (const std::string& input : inputs) function.add_input(input);
  for (const std::string& output : outputs) function.add_output(output);
  auto& import = *function.add_opset_import();
  import.set_version(18);
  return function;
}

// leaky(x) = LeakyRelu(x, alpha); twice(x) = leaky(leaky(x)); y = twice(x), z = leaky(y) with another alpha.
OnnxBuilder Nested() {
  OnnxBuilder b(18);
  b.Input("x", {4});
  b.Node("twice", {"x"}, {"y"}, "first").set_domain("pkg");
  onnx::NodeProto& second = b.Node("leaky", {"y"}, {"z"}, "second");
  second.set_domain("pkg");
  SetFloat(second, "slope", 0.5F);
  b.Output("z", {4});
  onnx::FunctionProto& leaky = AddFunction(b, "leaky", {"in"}, {"out"});
  onnx::NodeProto& relu = AddNode(leaky, "LeakyRelu", {"in"}, "t");
  relu.add_attribute()->set_name("alpha");
  relu.mutable_attribute(0)->set_ref_attr_name("slope");
  relu.mutable_attribute(0)->set_type(onnx::AttributeProto::FLOAT);
  AddNode(leaky, "Neg", {"t"}, "out");
  onnx::FunctionProto& twice = AddFunction(b, "twice", {"in"}, {"out"});
  AddNode(twice, "leaky", {"in"}, "t", "pkg");
  AddNode(twice, "leaky", {"t"}, "out", "pkg");
  return b;
}

std::vector<std::string> Ops(const Graph& graph) {
  std::vector<std::string> ops;
  for (const proto::Step& step : graph.steps) ops.push_back(step.op());
  return ops;
}

TEST(Functions, BecomeTheirNodes) {
  const std::string file = Nested().File();
  const auto graph = ReadGraph(AsBytes(file), {});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(Ops(*graph), ElementsAre("LeakyRelu", "Neg", "LeakyRelu", "Neg", "LeakyRelu", "Neg"));
  EXPECT_EQ(graph->steps[0].inputs(0), "x");
  EXPECT_EQ(graph->steps[3].outputs(0), "y");
  EXPECT_EQ(graph->steps[5].outputs(0), "z");
  EXPECT_EQ(graph->steps[0].attributes_size(), 0)
      << "an attribute that a call does not give is absent inside";
  EXPECT_FLOAT_EQ(graph->steps[4].attributes(0).f(), 0.5F);
  EXPECT_EQ(graph->steps[4].attributes(0).name(), "alpha");
  EXPECT_TRUE(ImportOnnx(AsBytes(file), {}).ok());
}

TEST(Functions, HaveDefaultsOfAttributes) {
  OnnxBuilder b = Nested();
  onnx::AttributeProto slope;
  slope.set_name("slope");
  slope.set_type(onnx::AttributeProto::FLOAT);
  slope.set_f(0.25F);
  onnx::FunctionProto& leaky = *b.model.mutable_functions(0);
  leaky.GetReflection()->MutableUnknownFields(&leaky)->AddLengthDelimited(11, slope.SerializeAsString());
  const std::string file = b.File();
  const auto graph = ReadGraph(AsBytes(file), {});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_FLOAT_EQ(graph->steps[0].attributes(0).f(), 0.25F);
  EXPECT_FLOAT_EQ(graph->steps[4].attributes(0).f(), 0.5F);
}

TEST(Functions, MayHandOutAnInputAndLeaveOutOthers) {
  OnnxBuilder b(18);
  b.Input("x", {4});
  onnx::NodeProto& call = b.Node("both", {"x"}, {"same", "clipped"});
  call.set_domain("pkg");
  b.Node("Add", {"same", "clipped"}, {"y"});
  b.Output("y", {4});
  AddNode(AddFunction(b, "both", {"in", "low"}, {"in", "out"}), "Clip", {"in", "low"}, "out");
  const std::string file = b.File();
  const auto graph = ReadGraph(AsBytes(file), {});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(Ops(*graph), ElementsAre("Identity", "Clip", "Add"));
  EXPECT_EQ(graph->steps[1].inputs_size(), 1);
}

TEST(Functions, NameValuesOfBranchesToo) {
  OnnxBuilder b(18);
  b.Input("x", {1});
  b.Node("choose", {"x"}, {"y"}).set_domain("pkg");
  b.Output("y", {1});
  onnx::FunctionProto& choose = AddFunction(b, "choose", {"in"}, {"out"});
  onnx::NodeProto& constant = AddNode(choose, "Constant", {}, "on");
  onnx::AttributeProto& value = *constant.add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  value.mutable_t()->set_data_type(onnx::TensorProto::BOOL);
  value.mutable_t()->set_raw_data(std::string(1, 1));
  OnnxBuilder then(18), otherwise(18);
  then.Node("Neg", {"in"}, {"t"});
  then.Output("t", {1});
  otherwise.Node("Abs", {"in"}, {"e"});
  otherwise.Output("e", {1});
  AddBranches(AddNode(choose, "If", {"on"}, "out"), then, otherwise);
  const std::string file = b.File();
  const auto imported = ImportOnnx(AsBytes(file), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->model.steps_size(), 1);
  EXPECT_EQ(imported->model.steps(0).op(), "Neg");
  EXPECT_EQ(imported->model.steps(0).inputs(0), "x");
}

TEST(Functions, ThatMakeNoSenseAreNamed) {
  OnnxBuilder endless = Nested();
  AddNode(*endless.model.mutable_functions(0), "twice", {"t"}, "u", "pkg");
  EXPECT_THAT(ReadError(endless), HasSubstr("nest deeper than 16"));
  OnnxBuilder newer = Nested();
  newer.model.mutable_functions(0)->mutable_opset_import(0)->set_version(19);
  EXPECT_THAT(ReadError(newer), HasSubstr("function pkg.leaky is of opset 19"));
  OnnxBuilder many = Nested();
  many.graph().mutable_node(0)->add_input("x");
  EXPECT_THAT(ReadError(many), HasSubstr("1 inputs and 1 outputs"));
  ImportOptions few;
  few.max_nodes = 5;
  EXPECT_THAT(ReadError(Nested(), few), HasSubstr("more than 5 nodes"));
  OnnxBuilder absent = Nested();
  absent.model.mutable_functions()->RemoveLast();
  const std::string file = absent.File();
  EXPECT_THAT(std::string(ImportOnnx(AsBytes(file), {}).status().message()), HasSubstr("pkg.twice"));
}

// Sixteen levels of eight calls each would be 2^48 nodes.
TEST(Functions, ThatMultiplyEndAtTheLimitOfNodes) {
  OnnxBuilder b(18);
  b.Input("x", {1});
  b.Node("f0", {"x"}, {"y"}).set_domain("pkg");
  b.Output("y", {1});
  for (int level = 0; level < 15; ++level) {
    onnx::FunctionProto& function = AddFunction(b, "f" + std::to_string(level), {"in"}, {"out"});
    for (int i = 0; i < 8; ++i)
      AddNode(function, level == 14 ? "Neg" : "f" + std::to_string(level + 1), {"in"},
              i == 0 ? "out" : "t" + std::to_string(i), level == 14 ? "" : "pkg");
  }
  EXPECT_THAT(ReadError(b), HasSubstr("nodes"));
}

// A thousand calls of a function that holds a constant of a megabyte.
TEST(Functions, ThatMultiplyConstantsEndAtTheLimitOfBytes) {
  OnnxBuilder b(18);
  b.Input("x", {1});
  for (int i = 0; i < 1000; ++i)
    b.Node("heavy", {"x"}, {i == 0 ? "y" : "y" + std::to_string(i)}).set_domain("pkg");
  b.Output("y", {1});
  onnx::FunctionProto& heavy = AddFunction(b, "heavy", {"in"}, {"out"});
  onnx::AttributeProto& value = *AddNode(heavy, "Constant", {}, "c").add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  value.mutable_t()->set_raw_data(std::string(1 << 20, 'c'));
  AddNode(heavy, "Neg", {"in"}, "out");
  EXPECT_THAT(ReadError(b), HasSubstr("256 MiB"));
}

}  // namespace
}  // namespace troupe::gpu::test

#include "gpu/import/onnx_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/gpu_import/onnx_builder.hpp"

namespace troupe::gpu::test {
namespace {

using onnx::TensorProto;
using testing::ElementsAre;
using testing::HasSubstr;

OnnxBuilder Trivial() {
  OnnxBuilder b;
  b.Input("x", {2, 3});
  b.Node("Relu", {"x"}, {"y"}, "relu");
  b.Output("y", {2, 3});
  return b;
}

TEST(OnnxReader, KeepsWhatTheFileSays) {
  const std::string file = SmallNetwork().File();
  const auto imported = ReadOnnx(AsBytes(file), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  const proto::Model& model = imported->model;
  EXPECT_EQ(model.opset(), 13);
  EXPECT_EQ(model.name(), "test");
  EXPECT_EQ(model.steps_size(), 12);
  ASSERT_EQ(model.inputs_size(), 1);
  EXPECT_THAT(model.inputs(0).shape(), ElementsAre(-1, 3, 8, 8));
  EXPECT_EQ(model.steps(0).op(), "Conv");
  EXPECT_THAT(model.steps(0).attributes(0).ints().values(), ElementsAre(1, 1, 1, 1));
  EXPECT_FLOAT_EQ(model.steps(5).attributes(0).f(), 0.1F);
  EXPECT_EQ(model.weights(0).name(), "w");
  for (const proto::Weight& weight : model.weights()) EXPECT_EQ(weight.offset() % 64, 0) << weight.name();
  EXPECT_EQ(model.weights_bytes(), imported->weights.size());
}

TEST(OnnxReader, SaysWhatIsNoModel) {
  EXPECT_THAT(ReadOnnx({}, {}).status().message(), HasSubstr("empty"));
  const std::string noise = "this is not a protobuf at all, or is it?";
  EXPECT_THAT(ReadOnnx(AsBytes(noise), {}).status().message(), HasSubstr("not a valid ONNX file"));
  OnnxBuilder b;
  b.model.clear_graph();
  EXPECT_THAT(ReadError(b), HasSubstr("no graph"));
}

TEST(OnnxReader, OpsetsOutsideItsRange) {
  for (int opset : {1, 6, 24}) {
    OnnxBuilder b = Trivial();
    b.model.mutable_opset_import(0)->set_version(opset);
    EXPECT_THAT(ReadError(b), HasSubstr("opset")) << opset;
  }
  OnnxBuilder none = Trivial();
  none.model.clear_opset_import();
  EXPECT_THAT(ReadError(none), HasSubstr("does not say which opset"));
}

TEST(OnnxReader, SortsNodes) {
  OnnxBuilder b;
  b.Input("x", {2});
  b.Node("Relu", {"b"}, {"y"}, "third");
  b.Node("Relu", {"a"}, {"b"}, "second");
  b.Node("Relu", {"x"}, {"a"}, "first");
  b.Output("y", {2});
  const std::string file = b.File();
  const auto imported = ReadOnnx(AsBytes(file), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->model.steps(0).name(), "first");
  EXPECT_EQ(imported->model.steps(2).name(), "third");
}

TEST(OnnxReader, NamesTheNodesOfACycle) {
  OnnxBuilder b;
  b.Input("x", {2});
  b.Node("Add", {"x", "c"}, {"a"}, "one");
  b.Node("Relu", {"a"}, {"b"}, "two");
  b.Node("Relu", {"b"}, {"c"}, "three");
  b.Node("Relu", {"c"}, {"y"}, "four");
  b.Output("y", {2});
  const std::string error = ReadError(b);
  EXPECT_THAT(error, HasSubstr("cyclic"));
  for (const char* name : {"one", "two", "three"}) EXPECT_THAT(error, HasSubstr(name));
  EXPECT_THAT(error, testing::Not(HasSubstr("four")));
}

TEST(OnnxReader, NamesMissingAndDoubleValues) {
  OnnxBuilder missing = Trivial();
  missing.graph().mutable_node(0)->set_input(0, "nowhere");
  EXPECT_THAT(ReadError(missing), testing::AllOf(HasSubstr("'relu'"), HasSubstr("'nowhere'")));
  OnnxBuilder twice = Trivial();
  twice.Node("Relu", {"x"}, {"y"}, "again");
  EXPECT_THAT(ReadError(twice), testing::AllOf(HasSubstr("'again'"), HasSubstr("'y'")));
  OnnxBuilder input = Trivial();
  input.Input("x", {2});
  EXPECT_THAT(ReadError(input), HasSubstr("'x'"));
  OnnxBuilder output = Trivial();
  output.Output("z", {2});
  EXPECT_THAT(ReadError(output), HasSubstr("nothing produces the output 'z'"));
  OnnxBuilder outputs = Trivial();
  outputs.Output("y", {2});
  EXPECT_THAT(ReadError(outputs), HasSubstr("stands twice"));
  OnnxBuilder weights = Trivial();
  weights.Weight("w", {1}, {1});
  weights.Weight("w", {1}, {1});
  EXPECT_THAT(ReadError(weights), HasSubstr("'w' is defined twice"));
}

TEST(OnnxReader, RefusesImpossibleShapes) {
  OnnxBuilder negative = Trivial();
  negative.Weight("w", {-2, 3}, {});
  EXPECT_THAT(ReadError(negative), testing::AllOf(HasSubstr("'w'"), HasSubstr("negative")));
  OnnxBuilder huge = Trivial();
  huge.Weight("w", {std::int64_t{1} << 32, std::int64_t{1} << 32}, {});
  EXPECT_THAT(ReadError(huge), testing::AllOf(HasSubstr("'w'"), HasSubstr("2^40")));
  OnnxBuilder large = Trivial();
  large.Weight("w", {std::int64_t{1} << 39}, {});
  EXPECT_THAT(ReadError(large), testing::AllOf(HasSubstr("'w'"), HasSubstr("limit")));
  OnnxBuilder input = Trivial();
  input.Input("z", {3, -7});
  EXPECT_THAT(ReadError(input), testing::AllOf(HasSubstr("'z'"), HasSubstr("negative")));
  OnnxBuilder huge_input = Trivial();
  huge_input.Input("z", {-1, std::int64_t{1} << 41});
  EXPECT_THAT(ReadError(huge_input), HasSubstr("2^40"));
}

TEST(OnnxReader, RefusesDataOfTheWrongSize) {
  OnnxBuilder raw = Trivial();
  raw.Weight("w", {3}, {1, 2});
  EXPECT_THAT(ReadError(raw), testing::AllOf(HasSubstr("'w'"), HasSubstr("8 bytes"), HasSubstr("12")));
  OnnxBuilder typed = Trivial();
  typed.Weight("w", {3}, {}).clear_raw_data();
  EXPECT_THAT(ReadError(typed), testing::AllOf(HasSubstr("'w'"), HasSubstr("has no data")));
}

TEST(OnnxReader, LimitsNodesAndWeights) {
  ImportOptions nodes;
  nodes.max_nodes = 10;
  EXPECT_THAT(ReadError(SmallNetwork(), nodes), HasSubstr("12 nodes"));
  ImportOptions weights;
  weights.max_weights = Bytes(900);
  EXPECT_THAT(ReadError(SmallNetwork(), weights), HasSubstr("limit"));
}

TEST(OnnxReader, RefusesWhatItCannotKeep) {
  OnnxBuilder sparse = Trivial();
  sparse.graph().add_sparse_initializer();
  EXPECT_THAT(ReadError(sparse), HasSubstr("sparse"));
  OnnxBuilder sequence = Trivial();
  sequence.graph().mutable_input(0)->mutable_type()->mutable_sequence_type();
  EXPECT_THAT(ReadError(sequence), HasSubstr("not a tensor"));
  OnnxBuilder complex = Trivial();
  complex.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      TensorProto::COMPLEX64);
  EXPECT_THAT(ReadError(complex), HasSubstr("element type"));
  OnnxBuilder rank = Trivial();
  rank.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_shape();
  EXPECT_THAT(ReadError(rank), HasSubstr("how many dimensions"));
  OnnxBuilder loop = Trivial();
  onnx::AttributeProto& body = *loop.graph().mutable_node(0)->add_attribute();
  body.set_name("body");
  body.set_type(onnx::AttributeProto::GRAPH);
  EXPECT_THAT(ReadError(loop),
              testing::AllOf(HasSubstr("'relu'"), HasSubstr("'body'"), HasSubstr("only If, Loop and Scan")));
  OnnxBuilder attribute = Trivial();
  SetInt(*attribute.graph().mutable_node(0), "a", 1);
  SetInt(*attribute.graph().mutable_node(0), "a", 2);
  EXPECT_THAT(ReadError(attribute), HasSubstr("'a' stands twice"));
}

TEST(OnnxReader, RefusesDeepNesting) {
  OnnxBuilder b = Trivial();
  onnx::GraphProto* graph = &b.graph();
  for (int depth = 0; depth < 60; ++depth) {
    onnx::AttributeProto& attribute = *graph->add_node()->add_attribute();
    attribute.set_type(onnx::AttributeProto::GRAPH);
    graph = attribute.mutable_g();
  }
  EXPECT_THAT(ReadError(b), HasSubstr("nested too deeply"));
}

TEST(OnnxReader, AnotherDomainsOperatorIsNotOnnxs) {
  OnnxBuilder b = Trivial();
  b.graph().mutable_node(0)->set_domain("com.example");
  const std::string file = b.File();
  const auto imported = ReadOnnx(AsBytes(file), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->model.steps(0).op(), "com.example.Relu");
}

TEST(OnnxReader, InitialisersAreNoInputs) {
  OnnxBuilder b = Trivial();
  b.Input("w", {2});
  b.Weight("w", {2}, {1, 2});
  const std::string file = b.File();
  EXPECT_EQ(ReadOnnx(AsBytes(file), {})->model.inputs_size(), 1);
}

TEST(OnnxReader, ConstantOutputsComeFromAStep) {
  OnnxBuilder b = Trivial();
  b.Weight("k", {2}, {1, 2});
  b.Output("k", {2});
  const std::string file = b.File();
  const auto imported = ReadOnnx(AsBytes(file), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->model.steps(1).op(), "Identity");
  EXPECT_EQ(imported->model.steps(1).outputs(0), "k");
}

TEST(OnnxReader, EqualContentsLieOnce) {
  OnnxBuilder b;
  b.Input("x", {2});
  b.Weight("a", {2}, {1, 2});
  b.Weight("b", {1, 2}, {1, 2});
  b.Weight("c", {2}, {3, 4});
  b.Weight("unused", {2}, {5, 6});
  b.Node("Add", {"x", "c"}, {"s"});
  b.Node("Add", {"s", "a"}, {"t"});
  b.Node("Add", {"t", "b"}, {"y"});
  b.Output("y", {1, 2});
  const std::string file = b.File();
  const auto imported = ReadOnnx(AsBytes(file), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto& weights = imported->model.weights();
  ASSERT_EQ(weights.size(), 3);
  EXPECT_EQ(weights[0].name(), "c");
  EXPECT_EQ(weights[1].offset(), 64);
  EXPECT_EQ(weights[2].offset(), 64);
  EXPECT_EQ(imported->weights.size(), 128);
}

// The typed data of every element type as bytes.
struct TypedCase {
  int type;
  proto::DataType want;
  std::size_t size;
};

TEST(OnnxReader, ReadsEveryElementType) {
  const TypedCase cases[] = {{TensorProto::FLOAT, proto::FP32, 4},    {TensorProto::DOUBLE, proto::FP64, 8},
                             {TensorProto::INT8, proto::INT8, 1},     {TensorProto::INT16, proto::INT16, 2},
                             {TensorProto::INT32, proto::INT32, 4},   {TensorProto::INT64, proto::INT64, 8},
                             {TensorProto::UINT8, proto::UINT8, 1},   {TensorProto::UINT16, proto::UINT16, 2},
                             {TensorProto::UINT32, proto::UINT32, 4}, {TensorProto::UINT64, proto::UINT64, 8},
                             {TensorProto::BOOL, proto::BOOL, 1},     {TensorProto::FLOAT16, proto::FP16, 2},
                             {TensorProto::BFLOAT16, proto::BF16, 2}};
  for (const TypedCase& c : cases) {
    OnnxBuilder b = Trivial();
    TensorProto& tensor = b.Weight("w", {2}, {});
    tensor.clear_raw_data();
    tensor.set_data_type(c.type);
    for (int i = 0; i < 2; ++i) {
      if (c.type == TensorProto::FLOAT)
        tensor.add_float_data(1);
      else if (c.type == TensorProto::DOUBLE)
        tensor.add_double_data(1);
      else if (c.type == TensorProto::INT64)
        tensor.add_int64_data(1);
      else if (c.type == TensorProto::UINT32 || c.type == TensorProto::UINT64)
        tensor.add_uint64_data(1);
      else
        tensor.add_int32_data(1);
    }
    const std::string file = b.File();
    const auto graph = ReadGraph(AsBytes(file), {});
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(graph->constants.at("w").type, c.want);
    EXPECT_EQ(graph->constants.at("w").data->size(), 2 * c.size);
  }
}

TEST(OnnxReader, ValuesMustFitTheirType) {
  OnnxBuilder b = Trivial();
  TensorProto& tensor = b.Weight("w", {1}, {});
  tensor.clear_raw_data();
  tensor.set_data_type(TensorProto::INT8);
  tensor.add_int32_data(300);
  EXPECT_THAT(ReadError(b), testing::AllOf(HasSubstr("'w'"), HasSubstr("300")));
}

TEST(OnnxReader, StringsCarryTheirLengths) {
  OnnxBuilder b = Trivial();
  TensorProto& tensor = b.Weight("w", {2}, {});
  tensor.clear_raw_data();
  tensor.set_data_type(TensorProto::STRING);
  tensor.add_string_data("ab");
  tensor.add_string_data("");
  const std::string file = b.File();
  const auto graph = ReadGraph(AsBytes(file), {});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(*graph->constants.at("w").data, std::string("\2\0\0\0ab\0\0\0\0", 10));
}

TEST(OnnxReader, ConstantNodesOfEveryKind) {
  OnnxBuilder b = Trivial();
  SetInt(b.Node("Constant", {}, {"i"}), "value_int", 5);
  SetFloat(b.Node("Constant", {}, {"f"}), "value_float", 0.5F);
  SetInts(b.Node("Constant", {}, {"is"}), "value_ints", {1, 2, 3});
  onnx::AttributeProto& tensor = SetInt(b.Node("Constant", {}, {"t"}), "value", 0);
  tensor.set_type(onnx::AttributeProto::TENSOR);
  *tensor.mutable_t() = OnnxBuilder().Weight("", {2, 1}, {1, 2});
  const std::string file = b.File();
  const auto graph = ReadGraph(AsBytes(file), {});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(graph->constants.at("i").shape.empty());
  EXPECT_THAT(FloatsOf(graph->constants.at("f")), ElementsAre(0.5F));
  EXPECT_THAT(graph->constants.at("is").shape, ElementsAre(3));
  EXPECT_THAT(graph->constants.at("t").shape, ElementsAre(2, 1));
  OnnxBuilder wrong = Trivial();
  SetInt(wrong.Node("Constant", {}, {"i"}, "odd"), "what", 5);
  EXPECT_THAT(ReadError(wrong), HasSubstr("'odd'"));
}

TEST(OnnxReader, AbsentOptionalInputs) {
  OnnxBuilder b;
  b.Input("x", {2});
  b.Weight("hi", {}, {1});
  b.Node("Clip", {"x", "", "hi"}, {"c"});
  b.Node("Clip", {"c", "", ""}, {"y"});
  b.Output("y", {2});
  const std::string file = b.File();
  const auto imported = ReadOnnx(AsBytes(file), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->model.steps(0).inputs(), ElementsAre("x", "", "hi"));
  EXPECT_THAT(imported->model.steps(1).inputs(), ElementsAre("c"));
}

}  // namespace
}  // namespace troupe::gpu::test

// Operators of com.microsoft that become chains of standard ones, and what is refused of them.
#include "gpu/import/fused_nodes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/engine/plan.hpp"
#include "gpu/import/import_model.hpp"
#include "gpu/import/passes.hpp"
#include "tests/unit/gpu_import/onnx_builder.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

onnx::NodeProto& Fused(OnnxBuilder& b, const std::string& op, std::initializer_list<std::string> inputs,
                       std::initializer_list<std::string> outputs, const std::string& name = "fused") {
  onnx::NodeProto& node = b.Node(op, inputs, outputs, name);
  node.set_domain("com.microsoft");
  return node;
}

void SetText(onnx::NodeProto& node, const std::string& name, const std::string& value) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::STRING);
  attribute.set_s(value);
}

void SetFloats(onnx::NodeProto& node, const std::string& name, std::initializer_list<float> values) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::FLOATS);
  for (float value : values) attribute.add_floats(value);
}

std::vector<std::string> StepsOf(const google::protobuf::RepeatedPtrField<proto::Step>& steps) {
  std::vector<std::string> ops;
  for (const proto::Step& step : steps)
    ops.push_back(step.activation().empty() ? step.op() : step.op() + "+" + step.activation());
  return ops;
}

// The steps as the file is read, without any pass.
std::vector<std::string> Read(const OnnxBuilder& b) {
  const std::string file = b.File();
  const auto model = ReadOnnx(AsBytes(file), {});
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? StepsOf(model->model.steps()) : std::vector<std::string>();
}

// The steps that a deployment runs.
std::vector<std::string> Deployed(const OnnxBuilder& b) {
  const std::string file = b.File();
  const auto model = ImportOnnx(AsBytes(file), {});
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? StepsOf(model->model.steps()) : std::vector<std::string>();
}

absl::Status ImportStatus(const OnnxBuilder& b) {
  const std::string file = b.File();
  return ImportOnnx(AsBytes(file), {}).status();
}

// x [2,4] and w [4,4], b [4], z [2,4].
OnnxBuilder Matrices() {
  OnnxBuilder b;
  b.Input("x", {2, 4});
  b.Input("z", {2, 4});
  b.Weight("w", {4, 4}, std::vector<float>(16, 0.5F));
  b.Weight("b", {4}, {1, 2, 3, 4});
  b.Output("y", {2, 4});
  return b;
}

TEST(FusedNodes, AreWrittenOutAsChains) {
  OnnxBuilder b = Matrices();
  Fused(b, "BiasGelu", {"x", "b"}, {"h"});
  Fused(b, "FastGelu", {"h"}, {"i"});
  Fused(b, "SkipLayerNormalization", {"i", "z", "b", "", "b"}, {"y"});
  EXPECT_THAT(Read(b), ElementsAre("Add", "Gelu", "Gelu", "Add", "Add", "LayerNormalization"));
}

TEST(FusedNodes, AnUnusedSumOfASkipIsStillTheNormalisationsInput) {
  OnnxBuilder b = Matrices();
  Fused(b, "SkipSimplifiedLayerNormalization", {"x", "z", "b"}, {"y", "", "", "sum"});
  b.Output("sum", {2, 4});
  EXPECT_THAT(Read(b), ElementsAre("Add", "SimplifiedLayerNormalization"));
  OnnxBuilder alone = Matrices();
  Fused(alone, "SkipLayerNormalization", {"x", "z", "b"}, {"", "", "", "y"});
  EXPECT_THAT(Read(alone), ElementsAre("Add"));
}

TEST(FusedNodes, PartsFuseAgainWithTheirNeighbours) {
  OnnxBuilder b = Matrices();
  b.Node("MatMul", {"x", "w"}, {"product"});
  Fused(b, "SkipLayerNormalization", {"product", "z", "b", "b", "b"}, {"h"});
  SetText(Fused(b, "FusedGemm", {"h", "w", "b"}, {"y"}), "activation", "Relu");
  // The bias is in the product, and the activation in the Gemm.
  EXPECT_THAT(Deployed(b), ElementsAre("MatMul", "Add", "LayerNormalization", "Gemm+Relu"));
}

TEST(FusedNodes, AConvolutionTakesItsSumAndItsActivationBack) {
  OnnxBuilder b;
  b.Input("x", {1, 2, 4, 4});
  b.Input("z", {1, 2, 4, 4});
  b.Weight("w", {2, 2, 1, 1}, {1, 2, 3, 4});
  b.Output("y", {1, 2, 4, 4});
  onnx::NodeProto& conv = Fused(b, "FusedConv", {"x", "w", "", "z"}, {"y"});
  SetText(conv, "activation", "Clip");
  SetFloats(conv, "activation_params", {0, 6});
  EXPECT_THAT(Read(b), ElementsAre("Conv", "Add", "Clip"));
  EXPECT_THAT(Deployed(b), ElementsAre("Conv+Clip"));
}

TEST(FusedNodes, StandInBranchesToo) {
  OnnxBuilder then, otherwise, b = Matrices();
  Fused(then, "BiasGelu", {"x", "b"}, {"t"});
  then.Output("t", {2, 4});
  Fused(otherwise, "FastGelu", {"x", "b"}, {"o"});
  otherwise.Output("o", {2, 4});
  onnx::TensorProto& yes = *b.graph().add_initializer();
  yes.set_name("yes");
  yes.set_data_type(onnx::TensorProto::BOOL);
  yes.set_raw_data(std::string(1, '\1'));
  AddBranches(b.Node("If", {"yes"}, {"y"}), then, otherwise);
  EXPECT_THAT(Deployed(b), ElementsAre("Add", "Gelu"));
}

void ExpectRefused(OnnxBuilder b, const std::string& part) {
  const absl::Status status = ImportStatus(b);
  ASSERT_FALSE(status.ok()) << part;
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  EXPECT_THAT(std::string(status.message()), HasSubstr("'fused'"));
}

TEST(FusedNodes, RefuseByNameWhatTheirChainDoesNotHonour) {
  {
    OnnxBuilder b = Matrices();
    SetInt(Fused(b, "BiasGelu", {"x", "b"}, {"y"}), "mode", 1);
    ExpectRefused(b, "attribute 'mode' is not supported");
  }
  {
    OnnxBuilder b = Matrices();
    Fused(b, "BiasGelu", {"x"}, {"y"});
    ExpectRefused(b, "input 1 is required");
  }
  {
    OnnxBuilder b = Matrices();
    Fused(b, "Gelu", {"x", "b"}, {"y"});
    ExpectRefused(b, "has 2 inputs");
  }
  {
    OnnxBuilder b = Matrices();
    Fused(b, "FastGelu", {"x"}, {"y", "more"});
    ExpectRefused(b, "has 2 outputs");
  }
  {
    OnnxBuilder b = Matrices();
    Fused(b, "SkipSimplifiedLayerNormalization", {"x", "z", "b"}, {"y", "mean"});
    ExpectRefused(b, "output 1 (mean)");
  }
  {
    OnnxBuilder b = Matrices();
    SetText(Fused(b, "FusedGemm", {"x", "w"}, {"y"}), "activation", "Swirl");
    ExpectRefused(b, "activation 'Swirl' is not supported");
  }
  {
    OnnxBuilder b = Matrices();
    SetInt(Fused(b, "FusedGemm", {"x", "w"}, {"y"}), "activation", 3);
    ExpectRefused(b, "activation must be a string");
  }
  {
    OnnxBuilder b = Matrices();
    SetFloat(Fused(b, "FusedGemm", {"x", "w"}, {"y"}), "activation_alpha", 3);
    ExpectRefused(b, "without an activation");
  }
  {
    OnnxBuilder b = Matrices();
    onnx::NodeProto& gemm = Fused(b, "FusedGemm", {"x", "w"}, {"y"});
    SetText(gemm, "activation", "LeakyRelu");
    SetFloat(gemm, "activation_gamma", 3);
    ExpectRefused(b, "activation_gamma does not belong");
  }
}

TEST(FusedNodes, RefuseParametersThatTheirActivationLacks) {
  for (const auto& [activation, parameters] : std::vector<std::pair<std::string, std::vector<float>>>{
           {"Relu", {1}}, {"Clip", {}}, {"Clip", {1, 2, 3}}}) {
    OnnxBuilder b;
    b.Input("x", {1, 2, 4, 4});
    b.Weight("w", {2, 2, 1, 1}, {1, 2, 3, 4});
    b.Output("y", {1, 2, 4, 4});
    onnx::NodeProto& conv = Fused(b, "FusedConv", {"x", "w"}, {"y"});
    SetText(conv, "activation", activation);
    onnx::AttributeProto& attribute = *conv.add_attribute();
    attribute.set_name("activation_params");
    attribute.set_type(onnx::AttributeProto::FLOATS);
    for (float value : parameters) attribute.add_floats(value);
    ExpectRefused(b, "parameters");
  }
}

// A scale for each row of A would be a scale for each column of the product.
TEST(FusedNodes, RefuseAScaleOfTheLeftSideThatIsNotOneNumber) {
  OnnxBuilder b;
  b.Input("x", {4, 4}, onnx::TensorProto::UINT8);
  b.Input("w", {4, 4}, onnx::TensorProto::UINT8);
  b.Weight("rows", {4}, {1, 2, 3, 4});
  b.Weight("one", {}, {1});
  b.Output("y", {4, 4});
  Fused(b, "MatMulIntegerToFloat", {"x", "w", "rows", "one"}, {"y"});
  const absl::Status status = ImportStatus(b);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST(FusedNodes, DoNotTakeANameThatTheFileUses) {
  OnnxBuilder b;
  b.Input("x", {1, 2, 4, 4});
  b.Weight("w", {2, 2, 1, 1}, {1, 2, 3, 4});
  b.Weight("y/min", {}, {1});
  b.Output("y", {1, 2, 4, 4});
  onnx::NodeProto& conv = Fused(b, "FusedConv", {"x", "w"}, {"y"});
  SetText(conv, "activation", "Clip");
  SetFloats(conv, "activation_params", {0, 6});
  ExpectRefused(b, "the name 'y/min' is taken");
}

// 64 rows of 256 numbers with 4 bits: 8 KiB, and a scale for each block of 32.
TEST(FusedNodes, WeightsOfFewBitsStayPacked) {
  OnnxBuilder b;
  b.Input("x", {3, 256});
  onnx::TensorProto& packed = *b.graph().add_initializer();
  packed.set_name("packed");
  packed.set_data_type(onnx::TensorProto::UINT8);
  for (std::int64_t size : {64, 8, 16}) packed.add_dims(size);
  packed.set_raw_data(std::string(64 * 8 * 16, '\x35'));
  b.Weight("scales", {64, 8}, std::vector<float>(64 * 8, 0.25F));
  b.Output("y", {3, 64});
  onnx::NodeProto& product = Fused(b, "MatMulNBits", {"x", "packed", "scales"}, {"y"});
  SetInt(product, "K", 256);
  SetInt(product, "N", 64);
  SetInt(product, "bits", 4);
  SetInt(product, "block_size", 32);
  const std::string file = b.File();
  const auto imported = ImportOnnx(AsBytes(file), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->weights.size(), 64U * 8 * 16 + 64 * 8 * sizeof(float));
  const std::vector<proto::TensorSpec> inputs(imported->model.inputs().begin(),
                                              imported->model.inputs().end());
  const auto made = PackModel(imported->model, imported->weights, inputs);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->weights.size(), imported->weights.size());
}

}  // namespace
}  // namespace troupe::gpu::test

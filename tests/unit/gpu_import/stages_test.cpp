// A model in stages computes what the whole model does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "gpu/import/canonical_files.hpp"
#include "tests/unit/gpu_import/onnx_builder.hpp"
#include "tests/unit/gpu_import/staged.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Of one of these square matrices of 32 rows.
constexpr Bytes kMatrix = KiB(4);

std::vector<float> Waves(std::size_t count, float phase) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i) + phase) * 0.2F;
  return values;
}

// x -> layers of matrices, each followed by Tanh -> y.
OnnxBuilder Layers(int count) {
  OnnxBuilder b;
  b.Input("x", {2, 32});
  for (int i = 1; i <= count; ++i) {
    const std::string n = std::to_string(i);
    b.Weight("w" + n, {32, 32}, Waves(1024, static_cast<float>(i)));
    b.Node("MatMul", {i == 1 ? "x" : "h" + std::to_string(i - 1), "w" + n}, {"m" + n});
    b.Node("Tanh", {"m" + n}, {i == count ? "y" : "h" + n});
  }
  b.Output("y", {2, 32});
  return b;
}

Tensors FloatInput(const std::string& name, std::vector<std::int64_t> shape) {
  NamedTensor tensor;
  tensor.spec.set_name(name);
  tensor.spec.set_type(proto::FP32);
  std::size_t count = 1;
  for (const auto size : shape) {
    tensor.spec.add_shape(size);
    count *= static_cast<std::size_t>(size);
  }
  const auto values = Waves(count, 7);
  tensor.data.resize(count * sizeof(float));
  std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return {{name, tensor}};
}

std::vector<std::string> Names(const google::protobuf::RepeatedPtrField<proto::TensorSpec>& specs) {
  std::vector<std::string> names;
  for (const auto& spec : specs) names.push_back(spec.name());
  return names;
}

// The stages, after they have given the outputs that the whole model gives.
std::vector<ImportedModel> ExpectSame(const OnnxBuilder& builder, Bytes most, const Tensors& inputs) {
  const std::string file = builder.File();
  const auto whole = ImportOnnx(AsBytes(file), {});
  auto stages = StagesOf(AsBytes(file), most);
  EXPECT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(stages.ok()) << stages.status();
  if (!whole.ok() || !stages.ok()) return {};
  Tensors want = inputs;
  Tensors have = inputs;
  EXPECT_TRUE(RunInto(*whole, want).ok());
  for (const auto& stage : *stages) {
    EXPECT_LE(Bytes(stage.model.weights_bytes()), most);
    const auto status = RunInto(stage, have);
    EXPECT_TRUE(status.ok()) << status;
  }
  for (const auto& output : whole->model.outputs()) {
    SCOPED_TRACE(output.name());
    EXPECT_EQ(have[output.name()].data, want[output.name()].data);
  }
  const auto outputs = stages->size() > 1 ? Names(whole->model.outputs()) : std::vector<std::string>();
  EXPECT_EQ(stages->front().model_outputs, outputs);
  return *std::move(stages);
}

TEST(Stages, LayersAreDividedWhereTheirWeightsAre) {
  const auto stages = ExpectSame(Layers(6), kMatrix * 2, FloatInput("x", {2, 32}));
  ASSERT_EQ(stages.size(), 3);
  for (const auto& stage : stages) EXPECT_EQ(Bytes(stage.model.weights_bytes()), kMatrix * 2);
  EXPECT_THAT(Names(stages[0].model.inputs()), ElementsAre("x"));
  EXPECT_THAT(Names(stages[1].model.inputs()), ElementsAre("h2"));
  EXPECT_THAT(Names(stages[2].model.outputs()), ElementsAre("y"));
  EXPECT_THAT(stages[1].model.inputs(0).shape(), ElementsAre(2, 32));
}

TEST(Stages, TakeAboutTheSameMemory) {
  // Four would fit into the first stage, and one be left for the second.
  const auto stages = ExpectSame(Layers(5), kMatrix * 4, FloatInput("x", {2, 32}));
  ASSERT_EQ(stages.size(), 2);
  EXPECT_EQ(Bytes(stages[0].model.weights_bytes()), kMatrix * 3);
}

TEST(Stages, AModelThatFitsStaysAsItIs) {
  const std::string file = Layers(3).File();
  const auto whole = ImportOnnx(AsBytes(file), {});
  const auto stages = StagesOf(AsBytes(file), kMatrix * 3);
  ASSERT_TRUE(whole.ok() && stages.ok());
  ASSERT_EQ(stages->size(), 1);
  EXPECT_EQ(ModelDigest(stages->front().model), ModelDigest(whole->model));
  EXPECT_THAT(stages->front().model_outputs, IsEmpty());
}

TEST(Stages, EqualWeightsCountOnce) {
  OnnxBuilder b = Layers(4);
  for (int i = 1; i < 4; ++i)
    b.graph().mutable_initializer(i)->set_raw_data(b.graph().initializer(0).raw_data());
  EXPECT_EQ(ExpectSame(b, kMatrix, FloatInput("x", {2, 32})).size(), 1);
}

// Sizes must be multiples of four, so that what is known for one row and for two is nothing.
TEST(Stages, ShapesAreFoundForSizesThatTheModelWorksWith) {
  OnnxBuilder b;
  b.Input("x", {1, -1, 32});
  b.Weight("w1", {32, 32}, Waves(1024, 1));
  b.Weight("w2", {32, 32}, Waves(1024, 2));
  b.Ints("groups", {1, 4, -1, 32});
  b.Ints("rows", {1, -1, 32});
  b.Node("MatMul", {"x", "w1"}, {"a"});
  b.Node("Reshape", {"a", "groups"}, {"b"});
  b.Node("ReduceMax", {"b"}, {"c"});
  SetInts(*b.graph().mutable_node(2), "axes", {1});
  SetInt(*b.graph().mutable_node(2), "keepdims", 0);
  b.Node("MatMul", {"c", "w2"}, {"y"});
  b.Output("y", {1, -1, 32});
  const auto stages = ExpectSame(b, kMatrix + Bytes(64), FloatInput("x", {1, 8, 32}));
  ASSERT_EQ(stages.size(), 2);
  EXPECT_THAT(Names(stages[1].model.inputs()), ElementsAre("c"));
  EXPECT_THAT(stages[1].model.inputs(0).shape(), ElementsAre(1, -1, 32));
}

TEST(Stages, AreTheSameEachTime) {
  const std::string file = Layers(7).File();
  const auto first = StagesOf(AsBytes(file), kMatrix * 2);
  const auto second = StagesOf(AsBytes(file), kMatrix * 2);
  ASSERT_TRUE(first.ok() && second.ok());
  for (std::size_t i = 0; i < first->size(); ++i)
    EXPECT_EQ(ModelDigest((*first)[i].model), ModelDigest((*second)[i].model));
}

// What the first layer made and the input are read by the last one.
TEST(Stages, ValuesAreHandedOnToLaterStages) {
  OnnxBuilder b = Layers(4);
  b.graph().mutable_node(7)->set_output(0, "h4");
  b.Node("Add", {"h4", "h1"}, {"sum"});
  b.Node("Mul", {"sum", "x"}, {"y"});
  const auto stages = ExpectSame(b, kMatrix * 2, FloatInput("x", {2, 32}));
  ASSERT_EQ(stages.size(), 2);
  EXPECT_THAT(Names(stages[0].model.outputs()), ElementsAre("h1", "h2"));
  EXPECT_THAT(Names(stages[1].model.inputs()), ElementsAre("x", "h1", "h2"));
}

TEST(Stages, AnOutputOfTheModelMayBeReadOn) {
  OnnxBuilder b = Layers(4);
  b.Output("h2", {2, 32});
  b.Output("h1", {2, 32});
  const auto stages = ExpectSame(b, kMatrix * 2, FloatInput("x", {2, 32}));
  ASSERT_EQ(stages.size(), 2);
  EXPECT_THAT(Names(stages[1].model.inputs()), ElementsAre("h2"));
  EXPECT_THAT(stages[0].model_outputs, ElementsAre("y", "h2", "h1"));
}

TEST(Stages, AWeightThatSeveralReadIsInEachOfThem) {
  OnnxBuilder b = Layers(4);
  b.graph().mutable_node(6)->set_input(1, "w1");  // the last layer's
  const auto stages = ExpectSame(b, kMatrix * 2, FloatInput("x", {2, 32}));
  ASSERT_EQ(stages.size(), 2);
  EXPECT_EQ(Bytes(stages[1].model.weights_bytes()), kMatrix * 2);
}

// The second of three layers has a wide result, which is not handed on.
TEST(Stages, EndWhereLeastIsHandedOn) {
  OnnxBuilder b;
  b.Input("x", {2, 32});
  b.Weight("w1", {32, 32}, Waves(1024, 1));
  b.Weight("w2", {32, 32}, Waves(1024, 2));
  b.Weight("w3", {32, 32}, Waves(1024, 3));
  b.Node("MatMul", {"x", "w1"}, {"a"});
  b.Node("Concat", {"a", "a", "a"}, {"wide"}).add_attribute()->CopyFrom([] {
    onnx::NodeProto node;
    return SetInt(node, "axis", 0);
  }());
  b.Node("MatMul", {"wide", "w2"}, {"b"});
  b.Node("ReduceMean", {"b"}, {"narrow"});
  SetInts(*b.graph().mutable_node(3), "axes", {0});
  b.Node("MatMul", {"narrow", "w3"}, {"y"});
  b.Output("y", {1, 32});
  const auto stages = ExpectSame(b, kMatrix * 2, FloatInput("x", {2, 32}));
  ASSERT_EQ(stages.size(), 2);
  EXPECT_THAT(Names(stages[1].model.inputs()), ElementsAre("narrow"));
}

// Sizes that a plan has to know are computed where they are needed, from the shape of an input.
TEST(Stages, NoStageIsGivenSizes) {
  OnnxBuilder b;
  b.Input("x", {-1, -1, 32});
  b.Weight("w1", {32, 32}, Waves(1024, 1));
  b.Weight("w2", {32, 32}, Waves(1024, 2));
  b.Ints("rows", {-1, 32});
  b.Node("Shape", {"x"}, {"size"});
  b.Node("Reshape", {"x", "rows"}, {"flat"});
  b.Node("MatMul", {"flat", "w1"}, {"a"});
  b.Node("MatMul", {"a", "w2"}, {"b"});
  b.Node("Reshape", {"b", "size"}, {"y"});
  b.Output("y", {-1, -1, 32});
  const auto stages = ExpectSame(b, kMatrix + Bytes(64), FloatInput("x", {3, 5, 32}));
  ASSERT_EQ(stages.size(), 2);
  EXPECT_THAT(Names(stages[0].model.outputs()), ElementsAre("a"));
  EXPECT_THAT(Names(stages[1].model.inputs()), ElementsAre("x", "a"));
  EXPECT_THAT(stages[1].model.inputs(1).shape(), ElementsAre(-1, 32));
}

TEST(Stages, WhatCannotBeDividedIsRefusedByName) {
  const std::string file = Layers(3).File();
  EXPECT_THAT(StagesOf(AsBytes(file), KiB(3)).status().message(),
              HasSubstr("cannot be divided into stages with at most 3 KiB of weights: MatMul"));
  const std::string deep = Layers(65).File();
  EXPECT_THAT(StagesOf(AsBytes(deep), kMatrix).status().message(), HasSubstr("65 stages"));
}

TEST(Stages, DoNotHandOnAnInputThatIsAnOutput) {
  OnnxBuilder b = Layers(4);
  b.Output("x", {2, 32});
  const std::string file = b.File();
  EXPECT_TRUE(StagesOf(AsBytes(file), kMatrix * 4).ok()) << "one model may";
  const auto refused = StagesOf(AsBytes(file), kMatrix).status();
  EXPECT_TRUE(absl::IsUnimplemented(refused)) << refused;
  EXPECT_THAT(refused.message(),
              HasSubstr("'x' is an input and an output of the model, which is served in stages"));
}

TEST(Stages, AnErrorOfATakerEndsTheImport) {
  const std::string file = Layers(3).File();
  int taken = 0;
  const auto status =
      ImportStages(AsBytes(file), {}, {kMatrix, kMatrix}, {.take = [&](const ImportedModel&) {
                     return ++taken < 2 ? absl::OkStatus() : absl::DataLossError("the disk is full");
                   }});
  EXPECT_EQ(status.message(), "the disk is full");
  EXPECT_EQ(taken, 2);
}

}  // namespace
}  // namespace troupe::gpu::test

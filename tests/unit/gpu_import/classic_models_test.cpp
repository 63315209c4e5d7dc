// Files of the domain ai.onnx.ml: what is rewritten while they are read, and what is refused.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "gpu/import/classic_models.hpp"
#include "gpu/import/import_model.hpp"
#include "tests/unit/gpu_import/onnx_builder.hpp"

namespace troupe::gpu::test {
namespace {

onnx::AttributeProto& Attribute(onnx::NodeProto& node, const std::string& name,
                                onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

void SetTextList(onnx::NodeProto& node, const std::string& name, std::initializer_list<std::string> values) {
  onnx::AttributeProto& attribute = Attribute(node, name, onnx::AttributeProto::STRINGS);
  for (const std::string& value : values) attribute.add_strings(value);
}

void SetFloatList(onnx::NodeProto& node, const std::string& name, std::initializer_list<float> values) {
  onnx::AttributeProto& attribute = Attribute(node, name, onnx::AttributeProto::FLOATS);
  for (float value : values) attribute.add_floats(value);
}

// x0 <= 0: 0.2 for class 0, else 0.9. The child for a false test is `no`.
onnx::NodeProto& AddTree(OnnxBuilder& b, std::int64_t no) {
  onnx::NodeProto& node = b.Node("TreeEnsembleClassifier", {"x"}, {"label", "scores"}, "trees");
  node.set_domain(kClassicDomain);
  SetInts(node, "nodes_treeids", {0, 0, 0});
  SetInts(node, "nodes_nodeids", {0, 1, 2});
  SetInts(node, "nodes_featureids", {0, 0, 0});
  SetTextList(node, "nodes_modes", {"BRANCH_LEQ", "LEAF", "LEAF"});
  SetFloatList(node, "nodes_values", {0, 0, 0});
  SetInts(node, "nodes_truenodeids", {1, 0, 0});
  SetInts(node, "nodes_falsenodeids", {no, 0, 0});
  SetInts(node, "class_treeids", {0, 0});
  SetInts(node, "class_nodeids", {1, 2});
  SetInts(node, "class_ids", {0, 0});
  SetFloatList(node, "class_weights", {0.2F, 0.9F});
  return node;
}

void AddZipMap(OnnxBuilder& b, onnx::TensorProto::DataType key) {
  onnx::NodeProto& zip = b.Node("ZipMap", {"scores"}, {"map"}, "zip");
  zip.set_domain(kClassicDomain);
  if (key == onnx::TensorProto::INT64) {
    SetInts(zip, "classlabels_int64s", {4, 7});
  } else {
    SetTextList(zip, "classlabels_strings", {"no", "yes"});
  }
  onnx::ValueInfoProto& output = *b.graph().add_output();
  output.set_name("map");
  auto& map = *output.mutable_type()->mutable_sequence_type()->mutable_elem_type()->mutable_map_type();
  map.set_key_type(key);
  map.mutable_value_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
}

OnnxBuilder Trees(bool texts, std::int64_t no = 2) {
  OnnxBuilder b(15);
  auto& import = *b.model.add_opset_import();
  import.set_domain(kClassicDomain);
  import.set_version(3);
  b.Input("x", {-1, 2});
  onnx::NodeProto& node = AddTree(b, no);
  if (texts) {
    SetTextList(node, "classlabels_strings", {"no", "yes"});
  } else {
    SetInts(node, "classlabels_int64s", {4, 7});
  }
  b.Output("label", {-1}, texts ? onnx::TensorProto::STRING : onnx::TensorProto::INT64);
  AddZipMap(b, texts ? onnx::TensorProto::STRING : onnx::TensorProto::INT64);
  return b;
}

std::string Outputs(const proto::Model& model) {
  std::string text;
  for (const proto::TensorSpec& output : model.outputs())
    text += output.name() + " " + proto::DataType_Name(output.type()) +
            FormatShape({output.shape().data(), output.shape().data() + output.shape_size()}) + "\n";
  return text;
}

std::string ImportError(const OnnxBuilder& builder) {
  const auto imported = ImportOnnx(AsBytes(builder.File()), {});
  EXPECT_FALSE(imported.ok());
  return imported.ok() ? "" : std::string(imported.status().message());
}

TEST(ClassicModels, AMapBecomesValuesAndKeys) {
  const auto imported = ImportOnnx(AsBytes(Trees(false).File()), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(Outputs(imported->model), "label INT64[-1]\nmap FP32[-1,2]\nmap.keys INT64[-1,2]\n");
}

TEST(ClassicModels, TextsStayTexts) {
  const auto imported = ImportOnnx(AsBytes(Trees(true).File()), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(Outputs(imported->model), "label BYTES[-1]\nmap FP32[-1,2]\nmap.keys BYTES[-1,2]\n");
  // Behind an Identity too.
  OnnxBuilder b = Trees(true);
  b.graph().mutable_output(0)->set_name("renamed");
  b.Node("Identity", {"label"}, {"renamed"});
  const auto renamed = ImportOnnx(AsBytes(b.File()), {});
  ASSERT_TRUE(renamed.ok()) << renamed.status();
  EXPECT_EQ(Outputs(renamed->model), "renamed BYTES[-1]\nmap FP32[-1,2]\nmap.keys BYTES[-1,2]\n");
}

TEST(ClassicModels, NeedNotNameAnOpsetOfOnnx) {
  OnnxBuilder b = Trees(false);
  b.model.mutable_opset_import(0)->set_version(1);
  EXPECT_TRUE(ImportOnnx(AsBytes(b.File()), {}).ok());
  b.model.mutable_opset_import()->DeleteSubrange(0, 1);
  EXPECT_TRUE(ImportOnnx(AsBytes(b.File()), {}).ok());
  b.Node("Identity", {"scores"}, {"same"});
  EXPECT_TRUE(absl::StrContains(ImportError(b), "does not say which opset"));
}

TEST(ClassicModels, RefusedByName) {
  OnnxBuilder newer = Trees(false);
  newer.model.mutable_opset_import(1)->set_version(6);
  EXPECT_TRUE(absl::StrContains(ImportError(newer), "version 6 of ai.onnx.ml; supported are 1 to 5"));
  OnnxBuilder other = Trees(false);
  other.graph().mutable_node(0)->set_op_type("DictVectorizer");
  EXPECT_TRUE(absl::StrContains(ImportError(other), "ai.onnx.ml.DictVectorizer"));
  OnnxBuilder taken = Trees(false);
  taken.Node("Relu", {"scores"}, {"map.keys"});
  EXPECT_TRUE(absl::StrContains(ImportError(taken), "map.keys"));
  // A map that no ZipMap makes.
  OnnxBuilder bare = Trees(false);
  bare.graph().mutable_node(1)->set_op_type("Identity");
  bare.graph().mutable_node(1)->set_domain("");
  bare.graph().mutable_node(1)->clear_attribute();
  EXPECT_TRUE(absl::StrContains(ImportError(bare), "maps and optionals are not supported"));
}

// Trees are judged before any input is known: here no dimension is.
TEST(ClassicModels, BadTreesAreRefusedWhateverTheInput) {
  for (std::int64_t no : {1, 3, 0, -5}) {
    OnnxBuilder b = Trees(false, no);
    b.graph()
        .mutable_input(0)
        ->mutable_type()
        ->mutable_tensor_type()
        ->mutable_shape()
        ->mutable_dim(1)
        ->set_dim_param("F");
    const std::string error = ImportError(b);
    EXPECT_TRUE(absl::StrContains(error, "ai.onnx.ml.TreeEnsembleClassifier 'trees'")) << error;
  }
}

// A file is mended once: each of its faults is named, and none twice.
TEST(ClassicModels, AllBadTreesOfAFileAreNamed) {
  OnnxBuilder b = Trees(false, -5);
  onnx::NodeProto& again = *b.graph().add_node();
  again = b.graph().node(0);
  again.set_name("more trees");
  again.set_output(0, "label 2");
  again.set_output(1, "scores 2");
  b.Output("scores 2", {-1, 2});
  const std::string error = ImportError(b);
  EXPECT_TRUE(absl::StrContains(error, "'trees'") && absl::StrContains(error, "'more trees'")) << error;
}

TEST(ClassicModels, WhatIsComputedFromTextsAndIntoThemIsTaken) {
  OnnxBuilder b = Trees(false);
  onnx::NodeProto& node = b.Node("LabelEncoder", {"label"}, {"word"}, "words");
  node.set_domain(kClassicDomain);
  SetInts(node, "keys_int64s", {4, 7});
  SetTextList(node, "values_strings", {"no", "yes"});
  b.Output("word", {-1}, onnx::TensorProto::STRING);
  const auto imported = ImportOnnx(AsBytes(b.File()), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_TRUE(absl::StrContains(Outputs(imported->model), "word BYTES[-1]")) << Outputs(imported->model);
  OnnxBuilder words(15);
  words.Input("word", {-1, 1}, onnx::TensorProto::STRING);
  onnx::NodeProto& hot = words.Node("OneHotEncoder", {"word"}, {"hot"}, "kinds");
  hot.set_domain(kClassicDomain);
  SetTextList(hot, "cats_strings", {"a", "a"});
  words.Output("hot", {-1, 1, 2});
  const std::string error = ImportError(words);
  EXPECT_TRUE(absl::StrContains(error, "OneHotEncoder 'kinds'") &&
              absl::StrContains(error, "the category a twice"))
      << error;
}

}  // namespace
}  // namespace troupe::gpu::test

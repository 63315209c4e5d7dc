// What a hostile file may say of classic models, and the error that it gets.
#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/random.hpp"
#include "tests/unit/gpu_ops/op_runner.hpp"

namespace troupe::gpu {
namespace {

constexpr std::int64_t kClaimed = std::int64_t{1} << 31;

void ExpectRefused(const proto::Step& step, const std::vector<TestTensor>& in, const std::string& part) {
  const auto out = RunOp(step, in);
  ASSERT_FALSE(out.ok()) << step.op() << " accepted the input, which lacks: " << part;
  EXPECT_EQ(out.status().code(), absl::StatusCode::kInvalidArgument) << out.status();
  EXPECT_TRUE(absl::StrContains(out.status().message(), part)) << out.status();
  EXPECT_TRUE(absl::StrContains(out.status().message(), step.op())) << out.status();
}

proto::Attribute& AttributeOf(proto::Step& step, const std::string& name) {
  for (proto::Attribute& attribute : *step.mutable_attributes())
    if (attribute.name() == name) return attribute;
  ADD_FAILURE() << "no attribute " << name;
  return *step.mutable_attributes(0);
}

// x0 <= 0: leaf 1, else x1 <= 1: leaf 3, else leaf 4.
proto::Step SmallTree() {
  proto::Step step = MakeStep("ai.onnx.ml.TreeEnsembleRegressor");
  SetInts(step, "nodes_treeids", {0, 0, 0, 0, 0});
  SetInts(step, "nodes_nodeids", {0, 1, 2, 3, 4});
  SetInts(step, "nodes_featureids", {0, 0, 1, 0, 0});
  SetTexts(step, "nodes_modes", {"BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"});
  SetFloats(step, "nodes_values", {0, 0, 1, 0, 0});
  SetInts(step, "nodes_truenodeids", {1, 0, 3, 0, 0});
  SetInts(step, "nodes_falsenodeids", {2, 0, 4, 0, 0});
  SetInts(step, "target_treeids", {0, 0, 0});
  SetInts(step, "target_nodeids", {1, 3, 4});
  SetInts(step, "target_ids", {0, 0, 0});
  SetFloats(step, "target_weights", {1, 2, 3});
  SetInt(step, "n_targets", 1);
  return step;
}

proto::Step WithInts(const std::string& name, const std::vector<std::int64_t>& values) {
  proto::Step step = SmallTree();
  AttributeOf(step, name).mutable_ints()->mutable_values()->Assign(values.begin(), values.end());
  return step;
}

const TestTensor& Rows() {
  static const TestTensor kRows = Floats({3, 2}, {-1, 0, 1, 0, 1, 2});
  return kRows;
}

TEST(BadClassic, TheTreeItself) {
  const auto out = RunOp(SmallTree(), {Rows()});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].As<float>(), (std::vector<float>{1, 2, 3}));
}

TEST(BadClassic, Trees) {
  ExpectRefused(WithInts("nodes_truenodeids", {1, 0, 0, 0, 0}), {Rows()}, "cycle");
  ExpectRefused(WithInts("nodes_falsenodeids", {2, 0, 2, 0, 0}), {Rows()}, "several nodes that no other");
  ExpectRefused(WithInts("nodes_falsenodeids", {1, 0, 4, 0, 0}), {Rows()}, "several nodes that no other");
  ExpectRefused(WithInts("nodes_falsenodeids", {9, 0, 4, 0, 0}), {Rows()}, "leads to node 9");
  ExpectRefused(WithInts("nodes_falsenodeids", {-1, 0, 4, 0, 0}), {Rows()}, "leads to node -1");
  ExpectRefused(WithInts("nodes_falsenodeids", {2, 0, 4, 0}), {Rows()}, "has 4 values, expected 5");
  ExpectRefused(WithInts("nodes_nodeids", {0, 1, 2, 3, 3}), {Rows()}, "given twice");
  ExpectRefused(WithInts("nodes_treeids", {0, 0, 0, 0, 1}), {Rows()}, "leads to node 4");
  ExpectRefused(WithInts("nodes_treeids", {}), {Rows()}, "has no nodes");
  ExpectRefused(WithInts("nodes_featureids", {0, 0, 2, 0, 0}), {Rows()}, "feature 2, the input has 2");
  ExpectRefused(WithInts("nodes_featureids", {0, 0, -1, 0, 0}), {Rows()}, "feature -1");
  ExpectRefused(WithInts("target_nodeids", {1, 3, 9}), {Rows()}, "not there");
  ExpectRefused(WithInts("target_nodeids", {1, 3, 2}), {Rows()}, "not a leaf");
  ExpectRefused(WithInts("target_ids", {0, 0, 1}), {Rows()}, "target 1 of 1");
  ExpectRefused(WithInts("target_ids", {0, 0, -1}), {Rows()}, "target -1");
  ExpectRefused(WithInts("target_ids", {0, 0}), {Rows()}, "has 2 values, expected 3");
  proto::Step modes = SmallTree();
  AttributeOf(modes, "nodes_modes").mutable_strings()->set_values(0, "BRANCH_MAYBE");
  ExpectRefused(modes, {Rows()}, "BRANCH_MAYBE");
  proto::Step many = SmallTree();
  AttributeOf(many, "n_targets").set_i(kClaimed);
  ExpectRefused(many, {Rows()}, "2147483648 targets");
  proto::Step base = SmallTree();
  SetFloats(base, "base_values", {1, 2});
  ExpectRefused(base, {Rows()}, "2 base values");
  proto::Step transform = SmallTree();
  SetText(transform, "post_transform", "TWICE");
  ExpectRefused(transform, {Rows()}, "TWICE");
  proto::Step aggregate = SmallTree();
  SetText(aggregate, "aggregate_function", "MEDIAN");
  ExpectRefused(aggregate, {Rows()}, "MEDIAN");
  ExpectRefused(SmallTree(), {Counting({1, 2, 3})}, "wants rows of features");
  // A sound tree, and beside it one whose nodes lead only to each other.
  proto::Step apart = WithInts("nodes_treeids", {0, 7, 7, 7, 7});
  AttributeOf(apart, "nodes_modes").mutable_strings()->set_values(0, "LEAF");
  AttributeOf(apart, "nodes_modes").mutable_strings()->set_values(1, "BRANCH_LEQ");
  AttributeOf(apart, "nodes_truenodeids").mutable_ints()->mutable_values()->Set(1, 2);
  AttributeOf(apart, "nodes_falsenodeids").mutable_ints()->mutable_values()->Set(1, 3);
  AttributeOf(apart, "nodes_truenodeids").mutable_ints()->mutable_values()->Set(2, 1);
  ExpectRefused(apart, {Rows()}, "lead in a cycle");
}

TEST(BadClassic, NewTrees) {
  const auto tensor = [](proto::Step& step, const std::string& name, proto::DataType type, std::string data,
                         std::int64_t count) {
    proto::Attribute& attribute = *step.add_attributes();
    attribute.set_name(name);
    attribute.mutable_tensor()->mutable_spec()->set_type(type);
    attribute.mutable_tensor()->mutable_spec()->add_shape(count);
    attribute.mutable_tensor()->set_data(std::move(data));
  };
  const auto floats = [](std::vector<float> values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  };
  const auto make = [&](std::int64_t yes, std::int64_t leaf, std::int64_t root, char mode,
                        std::int64_t claimed) {
    proto::Step step = MakeStep("ai.onnx.ml.TreeEnsemble");
    SetInts(step, "nodes_featureids", {0});
    SetInts(step, "nodes_truenodeids", {yes});
    SetInts(step, "nodes_falsenodeids", {1});
    SetInts(step, "nodes_trueleafs", {leaf});
    SetInts(step, "nodes_falseleafs", {1});
    SetInts(step, "leaf_targetids", {0, 0});
    SetInts(step, "tree_roots", {root});
    tensor(step, "nodes_modes", proto::UINT8, std::string(1, mode), 1);
    tensor(step, "nodes_splits", proto::FP32, floats({0}), claimed);
    tensor(step, "leaf_weights", proto::FP32, floats({5, 6}), 2);
    return step;
  };
  const auto sound = RunOp(make(0, 1, 0, 0, 1), {Rows()});
  ASSERT_TRUE(sound.ok()) << sound.status();
  EXPECT_EQ((*sound)[0].As<float>(), (std::vector<float>{5, 6, 6}));
  ExpectRefused(make(0, 0, 0, 0, 1), {Rows()}, "reached twice");
  ExpectRefused(make(2, 1, 0, 0, 1), {Rows()}, "leads to leaf 2 of 2");
  ExpectRefused(make(0, 1, 1, 0, 1), {Rows()}, "begins at node 1 of 1");
  ExpectRefused(make(0, 1, 0, 7, 1), {Rows()}, "unknown mode 7");
  ExpectRefused(make(0, 1, 0, 6, 1), {Rows()}, "ends before the members");
  ExpectRefused(make(0, 1, 0, 0, kClaimed), {Rows()}, "its shape asks for");
}

proto::Step Classifier(const std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& labels) {
  proto::Step step = SmallTree();
  step.set_op("ai.onnx.ml.TreeEnsembleClassifier");
  step.add_outputs("y1");
  for (proto::Attribute& attribute : *step.mutable_attributes())
    if (attribute.name().starts_with("target_")) attribute.set_name("class_" + attribute.name().substr(7));
  AttributeOf(step, "class_ids").mutable_ints()->mutable_values()->Assign(ids.begin(), ids.end());
  if (!labels.empty()) SetInts(step, "classlabels_int64s", labels);
  return step;
}

TEST(BadClassic, Classes) {
  ExpectRefused(Classifier({0, 0, 0}, {}), {Rows()}, "exactly one of");
  ExpectRefused(Classifier({0, 0, 0}, {4}), {Rows()}, "has 1 class");
  ExpectRefused(Classifier({0, 1, 2}, {4, 5}), {Rows()}, "target 2 of 2");
  proto::Step both = Classifier({0, 0, 0}, {4, 5});
  SetTexts(both, "classlabels_strings", {"a", "b"});
  ExpectRefused(both, {Rows()}, "exactly one of");
  proto::Step base = Classifier({1, 1, 1}, {4, 5});
  SetFloats(base, "base_values", {0.5F});
  ExpectRefused(base, {Rows()}, "weights are of one class");
  proto::Step probit = Classifier({0, 0, 0}, {4, 5});
  SetText(probit, "post_transform", "PROBIT");
  ExpectRefused(probit, {Rows()}, "PROBIT");
  // Weights of both classes: the label is that of the greater score.
  const auto out = RunOp(Classifier({0, 1, 0}, {4, 5}), {Rows()});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].As<std::int64_t>(), (std::vector<std::int64_t>{4, 5, 4}));
  EXPECT_EQ((*out)[1].As<float>(), (std::vector<float>{1, 0, 0, 2, 3, 0}));
}

TEST(BadClassic, LabelsMayBeTexts) {
  proto::Step step = Classifier({0, 1, 2}, {});
  SetTexts(step, "classlabels_strings", {"cat", "dog", "owl"});
  const auto out = RunOp(step, {Rows()});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].AsTexts(), (std::vector<std::string>{"cat", "dog", "owl"}));
}

TEST(BadClassic, LinearModels) {
  proto::Step step = MakeStep("ai.onnx.ml.LinearRegressor");
  ExpectRefused(step, {Rows()}, "0 coefficients for 1 targets");
  SetFloats(step, "coefficients", {1, 2, 3});
  ExpectRefused(step, {Rows()}, "3 coefficients for 1 targets of 2 features");
  SetInt(step, "targets", kClaimed);
  ExpectRefused(step, {Rows()}, "2147483648 targets");
  proto::Step classes = MakeStep("ai.onnx.ml.LinearClassifier", 2);
  SetFloats(classes, "coefficients", {1, 2, 3, 4});
  SetInts(classes, "classlabels_ints", {1, 2});
  SetFloats(classes, "intercepts", {1, 2, 3});
  ExpectRefused(classes, {Rows()}, "'intercepts' has 3 values, expected 2");
}

TEST(BadClassic, SupportVectors) {
  const auto regressor = [](std::int64_t supports) {
    proto::Step step = MakeStep("ai.onnx.ml.SVMRegressor");
    SetInt(step, "n_supports", supports);
    SetFloats(step, "support_vectors", {1, 2, 3, 4});
    SetFloats(step, "coefficients", {1, 2});
    SetFloats(step, "rho", {0});
    return step;
  };
  EXPECT_TRUE(RunOp(regressor(2), {Rows()}).ok());
  ExpectRefused(regressor(kClaimed), {Rows()}, "claims 2147483648 support vectors");
  ExpectRefused(regressor(-1), {Rows()}, "claims -1");
  ExpectRefused(regressor(3), {Rows()}, "4 values for 3 support vectors");
  ExpectRefused(regressor(0), {Rows()}, "LinearRegressor");
  const auto classifier = [](const std::vector<std::int64_t>& counts, std::size_t rho) {
    proto::Step step = MakeStep("ai.onnx.ml.SVMClassifier", 2);
    SetInts(step, "classlabels_ints", {0, 1});
    SetInts(step, "vectors_per_class", counts);
    SetFloats(step, "support_vectors", {1, 2, 3, 4});
    SetFloats(step, "coefficients", {1, 2});
    SetFloats(step, "rho", std::vector<float>(rho));
    return step;
  };
  EXPECT_TRUE(RunOp(classifier({1, 1}, 1), {Rows()}).ok());
  ExpectRefused(classifier({1, kClaimed}, 1), {Rows()}, "claims 2147483649 support vectors");
  ExpectRefused(classifier({2, -1}, 1), {Rows()}, "the count -1");
  ExpectRefused(classifier({2}, 1), {Rows()}, "has 1 values, expected 2");
  ExpectRefused(classifier({1, 1}, 3), {Rows()}, "'rho' has 3 values, expected 1");
  proto::Step half = classifier({1, 1}, 1);
  SetFloats(half, "prob_a", {1});
  ExpectRefused(half, {Rows()}, "'prob_b'");
}

TEST(BadClassic, Features) {
  proto::Step scaler = MakeStep("ai.onnx.ml.Scaler");
  ExpectRefused(scaler, {Rows()}, "'offset' has 0 values");
  proto::Step norm = MakeStep("ai.onnx.ml.Normalizer");
  SetText(norm, "norm", "L3");
  ExpectRefused(norm, {Rows()}, "L3");
  proto::Step imputer = MakeStep("ai.onnx.ml.Imputer");
  SetFloats(imputer, "imputed_value_floats", {1, 2, 3});
  ExpectRefused(imputer, {Rows()}, "3 values, expected 1 or 2");
  ExpectRefused(imputer, {Longs({1, 2}, {1, 2})}, "another type");
  proto::Step vectorizer = MakeStep("ai.onnx.ml.FeatureVectorizer");
  SetInts(vectorizer, "inputdimensions", {2, kClaimed});
  ExpectRefused(vectorizer, {Rows(), Rows()}, "says 2147483648");
  ExpectRefused(vectorizer, {Rows()}, "has 2 values, expected 1");
}

TEST(BadClassic, Categories) {
  proto::Step encoder = MakeStep("ai.onnx.ml.LabelEncoder");
  SetInts(encoder, "keys_int64s", {1, 2});
  ExpectRefused(encoder, {Longs({1}, {1})}, "no values");
  SetInts(encoder, "values_int64s", {1, 2, 3});
  ExpectRefused(encoder, {Longs({1}, {1})}, "2 keys and 3 values");
  proto::Step texts = MakeStep("ai.onnx.ml.LabelEncoder");
  SetTexts(texts, "keys_strings", {"a"});
  ExpectRefused(texts, {Longs({1}, {1})}, "has no values");
  SetTexts(texts, "values_strings", {"b"});
  ExpectRefused(texts, {Longs({1}, {1})}, "keys of type BYTES for an input of INT64");
  proto::Step tensor = MakeStep("ai.onnx.ml.LabelEncoder");
  SetTexts(tensor, "values_strings", {"b"});
  proto::Attribute& keys = *tensor.add_attributes();
  keys.set_name("keys_tensor");
  keys.mutable_tensor()->mutable_spec()->set_type(proto::BYTES);
  keys.mutable_tensor()->mutable_spec()->add_shape(kClaimed);
  keys.mutable_tensor()->set_data(std::string(8, '\0'));
  ExpectRefused(tensor, {Texts({1}, {"a"})}, "has 8 bytes, too few for 2147483648 texts");
  keys.mutable_tensor()->mutable_spec()->set_shape(0, 1);
  ExpectRefused(tensor, {Texts({1}, {"a"})}, "4 bytes are left after its 1 texts");
  proto::Step mapper = MakeStep("ai.onnx.ml.CategoryMapper");
  SetInts(mapper, "cats_int64s", {1, 2});
  ExpectRefused(mapper, {Longs({1}, {1})}, "has no texts");
  SetTexts(mapper, "cats_strings", {"a"});
  ExpectRefused(mapper, {Longs({1}, {1})}, "2 keys and 1 values");
  proto::Step hot = MakeStep("ai.onnx.ml.OneHotEncoder");
  ExpectRefused(hot, {Longs({1}, {1})}, "wants its categories in exactly one of");
  SetInts(hot, "cats_int64s", {1, 2});
  SetInt(hot, "zeros", 0);
  ExpectRefused(hot, {Longs({2}, {2, 3})}, "none of its categories");
  proto::Step twice = MakeStep("ai.onnx.ml.OneHotEncoder");
  SetInts(twice, "cats_int64s", {1, 1});
  ExpectRefused(twice, {Longs({1}, {1})}, "twice");
  proto::Step words = MakeStep("ai.onnx.ml.OneHotEncoder");
  SetTexts(words, "cats_strings", {"a", "b"});
  ExpectRefused(words, {Longs({1}, {1})}, "categories that are texts for an input of INT64");
  SetInt(words, "zeros", 0);
  ExpectRefused(words, {Texts({1}, {"c"})}, "the input has c, which is none of its categories");
  const proto::Step columns = MakeStep("ai.onnx.ml.ArrayFeatureExtractor");
  ExpectRefused(columns, {Rows(), Longs({1}, {2}).Known()}, "column 2 of 2");
  ExpectRefused(columns, {Rows(), Longs({1}, {-1})}, "column -1 of 2");
  ExpectRefused(columns, {Rows(), Longs({0}, {})}, "no column");
  proto::Step zip = MakeStep("ai.onnx.ml.ZipMap", 2);
  SetInts(zip, "classlabels_int64s", {1, 2, 3});
  ExpectRefused(zip, {Rows()}, "has 3 values, expected 2");
}

// Lists of all kinds and lengths, often of one length so that they pass the first checks: an error or a result,
// never memory of others.
TEST(BadClassic, RandomLists) {
  constexpr const char* kOperators[] = {"LinearRegressor", "LinearClassifier", "SVMRegressor",
                                        "SVMClassifier",   "Scaler",           "Normalizer",
                                        "Imputer",         "Binarizer",        "FeatureVectorizer",
                                        "LabelEncoder",    "OneHotEncoder",    "ArrayFeatureExtractor",
                                        "ZipMap"};
  constexpr const char* kIntLists[] = {"classlabels_ints",     "classlabels_int64s", "vectors_per_class",
                                       "imputed_value_int64s", "inputdimensions",    "keys_int64s",
                                       "values_int64s",        "cats_int64s"};
  constexpr const char* kFloatLists[] = {
      "coefficients", "intercepts",    "support_vectors", "rho",   "prob_a",
      "prob_b",       "kernel_params", "offset",          "scale", "imputed_value_floats",
      "keys_floats",  "values_floats"};
  constexpr const char* kInts[] = {"targets", "n_supports", "one_class", "zeros", "multi_class"};
  constexpr const char* kKernels[] = {"LINEAR", "POLY", "RBF", "SIGMOID"};
  constexpr const char* kTransforms[] = {"NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"};
  Random random(26);
  int done = 0;
  for (int round = 0; round < 20'000; ++round) {
    proto::Step step = MakeStep(absl::StrCat("ai.onnx.ml.", kOperators[random.Below(std::size(kOperators))]),
                                1 + static_cast<int>(random.Below(2)));
    const std::uint64_t width = 1 + random.Below(3);
    const auto length = [&] {
      return random.Below(4) != 0 ? width * (1 + random.Below(2)) : random.Below(7);
    };
    const auto number = [&] {
      return random.Below(30) == 0 ? -kClaimed : static_cast<std::int64_t>(random.Below(4));
    };
    for (const char* name : kIntLists) {
      if (random.Below(2) == 0) continue;
      std::vector<std::int64_t> values(length());
      for (std::int64_t& value : values) value = number();
      SetInts(step, name, values);
    }
    for (const char* name : kFloatLists) {
      if (random.Below(3) == 0) continue;
      SetFloats(step, name, std::vector<float>(length(), static_cast<float>(random.Below(5)) - 2));
    }
    for (const char* name : kInts)
      if (random.Below(3) == 0) SetInt(step, name, number());
    SetText(step, "kernel_type", kKernels[random.Below(std::size(kKernels))]);
    SetText(step, "post_transform", kTransforms[random.Below(std::size(kTransforms))]);
    const auto columns = static_cast<std::int64_t>(width);
    std::vector<TestTensor> in = {Counting(random.Below(3) == 0 ? Shape{columns} : Shape{2, columns})};
    if (random.Below(3) == 0) in = {Longs({2, 1}, {number(), number()})};
    if (random.Below(3) == 0) in.push_back(Longs({2}, {number(), number()}));
    done += RunOp(step, in).ok() ? 1 : 0;
  }
  EXPECT_GT(done, 1000);
}

}  // namespace
}  // namespace troupe::gpu

// If, Loop and Scan in files: what of them is folded, what they read from outside, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "base/random.hpp"
#include "gpu/import/canonical_files.hpp"
#include "gpu/import/model_check.hpp"
#include "gpu/ops/control_flow.hpp"
#include "tests/unit/gpu_import/imported.hpp"

namespace troupe::gpu::test::subgraphs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr int kBool = onnx::TensorProto::BOOL;
constexpr int kInt64 = onnx::TensorProto::INT64;

// v -> v * scale + w[0], where `scale` = two + two and w are constants outside, and two also stands inside.
OnnxBuilder Body() {
  OnnxBuilder body;
  body.Input("i", {}, kInt64);
  body.Input("go", {}, kBool);
  body.Input("v", {2});
  body.Weight("two", {}, {2});
  body.Node("Mul", {"two", "four"}, {"eight"});
  body.Node("Div", {"eight", "two"}, {"scale"});
  body.Node("Gather", {"w", "zero"}, {"first"});
  body.Node("Mul", {"v", "scale"}, {"scaled"});
  body.Node("Add", {"scaled", "first"}, {"next"});
  body.Node("Identity", {"go"}, {"goes"});
  body.Output("goes", {}, kBool);
  body.Output("next", {2});
  return body;
}

OnnxBuilder Looped(const OnnxBuilder& body) {
  OnnxBuilder b;
  b.Input("most", {}, kInt64);
  b.Input("x", {2});
  b.Weight("two", {}, {2});
  b.Weight("w", {2}, {10, 20});
  b.Ints("zeros", {0});
  b.Node("Squeeze", {"zeros"}, {"zero"});
  b.Node("Add", {"two", "two"}, {"four"});
  AddGraph(b.Node("Loop", {"most", "", "x"}, {"y"}, "loop"), "body", body);
  b.Output("y", {2});
  return b;
}

TEST(Subgraphs, ConstantsAreFoldedInsideAndBecomeWeights) {
  const auto imported = Import(Looped(Body()));
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_THAT(imported->model.steps(), SizeIs(1));
  const proto::Step& loop = imported->model.steps(0);
  // Mul, Add; the condition is handed on.
  EXPECT_THAT(loop.subgraphs(0).steps(), SizeIs(3));
  EXPECT_THAT(imported->model.weights(), SizeIs(2));
  EXPECT_THAT(loop.inputs(), ElementsAre("most", "", "x", "y/body/scale", "y/body/first"));
  EXPECT_THAT(imported->model.outputs(0).shape(), ElementsAre(2));
  const std::vector<std::int64_t> most = {2};
  const std::vector<float> x = {1, -1};
  const auto y = Answer(*imported, {BytesOf(most), BytesOf(x)});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT(*y, ElementsAre(1 * 16 + 50, -16 + 50));
}

TEST(Subgraphs, AVectorMayCountTheTrips) {
  OnnxBuilder body;
  body.Input("i", {1}, kInt64);
  body.Input("go", {1}, kBool);
  body.Input("v", {2});
  SetInt(body.Node("Cast", {"i"}, {"f"}), "to", onnx::TensorProto::FLOAT);
  SetInt(body.Node("Concat", {"f", "f"}, {"both"}), "axis", 0);  // a scalar could not be
  body.Node("Add", {"v", "both"}, {"next"});
  body.Node("Identity", {"go"}, {"goes"});
  body.Output("goes", {1}, kBool);
  body.Output("next", {2});
  const auto imported = Import(Looped(body));
  ASSERT_TRUE(imported.ok()) << imported.status();
  const std::vector<std::int64_t> most = {4};
  const std::vector<float> x = {1, -1};
  const auto y = Answer(*imported, {BytesOf(most), BytesOf(x)});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT(*y, ElementsAre(7, 5));
}

TEST(Subgraphs, AreRefusedByName) {
  OnnxBuilder b = Looped(Body());
  b.graph().mutable_node(2)->mutable_attribute(0)->set_name("bode");
  EXPECT_THAT(Refusal(b), HasSubstr("Loop 'loop' has the unknown graph 'bode'"));
  b.graph().mutable_node(2)->clear_attribute();
  EXPECT_THAT(Refusal(b), HasSubstr("Loop 'loop' must have the graph 'body'"));

  OnnxBuilder body = Body();
  body.Node("DeformConv", {"v"}, {"odd"});
  body.graph().mutable_output(1)->set_name("odd");
  EXPECT_THAT(Refusal(Looped(body)), HasSubstr("not supported at opset 13: DeformConv (1 node, 'odd')"));

  body = Body();
  body.Output("more", {2});
  EXPECT_THAT(Refusal(Looped(body)), HasSubstr("'more'"));  // nothing makes it
  body.Node("Neg", {"v"}, {"more"});
  EXPECT_THAT(Refusal(Looped(body)), HasSubstr("Loop 'loop': has 1 outputs, and its body makes 2"));

  body = Body();
  body.graph().mutable_node(3)->set_input(0, "nowhere");
  EXPECT_THAT(Refusal(Looped(body)), HasSubstr("reads 'nowhere'"));

  body = Body();
  body.Weight("v", {2}, {1, 2});
  EXPECT_THAT(Refusal(Looped(body)), HasSubstr("initialiser for its input 'v'"));

  body = Body();
  body.graph().mutable_node(4)->set_input(0, "next");
  EXPECT_THAT(Refusal(Looped(body)), HasSubstr("cyclic"));

  OnnxBuilder map;
  map.Input("x", {2});
  AddGraph(map.Node("SequenceMap", {"x"}, {"y"}, "map"), "body", Body());
  map.Output("y", {2});
  EXPECT_THAT(Refusal(map), HasSubstr("SequenceMap"));
}

// The attribute is the importer's own note of a step's graphs; libFuzzer found that a file may write it, too.
TEST(Subgraphs, AFileCannotNameGraphsByTheirPlace) {
  const auto write_places = [](onnx::NodeProto& node) {
    auto& places = *node.add_attribute();
    places.set_name(kSubgraphPlaces);
    places.set_type(onnx::AttributeProto::INTS);
    places.add_ints(7);
  };
  OnnxBuilder none;
  none.Input("x", {2});
  write_places(none.Node("Neg", {"x"}, {"y"}));
  none.Output("y", {2});
  EXPECT_EQ(Refusal(none), "accepted");

  OnnxBuilder b = Looped(Body());
  write_places(*b.graph().mutable_node(2));
  EXPECT_THAT(Refusal(b), HasSubstr("Loop 'loop' has the unknown attribute 'subgraph places'"));
}

TEST(Subgraphs, HugeTripCountsAreRefusedWhereTheyDecideASize) {
  OnnxBuilder body = Body();
  body.Output("next2", {2});
  body.Node("Neg", {"v"}, {"next2"});
  for (const std::int64_t trips : {std::int64_t{100'001}, std::int64_t{1} << 62}) {
    OnnxBuilder b = Looped(body);
    b.graph().mutable_input()->DeleteSubrange(0, 1);
    b.Ints("most", {trips});
    b.graph().mutable_node(2)->add_output("parts");
    b.Output("parts", {-1, 2});
    EXPECT_THAT(Refusal(b), HasSubstr("Loop 'loop': goes round"));
    EXPECT_THAT(Refusal(b), HasSubstr("at most 100000 trips"));
  }
}

// Each If stands in the branch of the one before.
OnnxBuilder Nested(int depth) {
  OnnxBuilder inner;
  inner.Node("Neg", {"x"}, {"out"});
  inner.Output("out", {2});
  for (int d = 1; d < depth; ++d) {
    OnnxBuilder outer;
    AddBranches(outer.Node("If", {"c"}, {"out"}), inner, inner);
    outer.Output("out", {2});
    inner = outer;
  }
  OnnxBuilder b;
  b.Input("c", {}, kBool);
  b.Input("x", {2});
  AddBranches(b.Node("If", {"c"}, {"y"}), inner, inner);
  b.Output("y", {2});
  return b;
}

TEST(Subgraphs, NestToALimit) {
  const auto deepest = Import(Nested(kMaxSubgraphDepth));
  ASSERT_TRUE(deepest.ok()) << deepest.status();
  const std::vector<std::uint8_t> c = {1};
  const std::vector<float> x = {1, 2};
  const auto y = Answer(*deepest, {BytesOf(c), BytesOf(x)});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT(*y, ElementsAre(-1, -2));
  const absl::Status deeper = Import(Nested(kMaxSubgraphDepth + 1)).status();
  EXPECT_EQ(deeper.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(deeper.message(), HasSubstr("deeper than the limit of 8"));
}

// A function whose loop calls the function again.
TEST(Subgraphs, FunctionsThatCallThemselvesInALoopAreRefused) {
  OnnxBuilder b;
  b.Input("x", {2});
  b.Output("y", {2});
  b.model.add_opset_import()->set_domain("own");
  b.model.mutable_opset_import(1)->set_version(1);
  b.Node("Again", {"x"}, {"y"}).set_domain("own");
  onnx::FunctionProto& function = *b.model.add_functions();
  function.set_name("Again");
  function.set_domain("own");
  function.add_input("a");
  function.add_output("b");
  OnnxBuilder body;
  body.Input("i", {}, kInt64);
  body.Input("go", {}, kBool);
  body.Input("v", {2});
  body.Node("Again", {"v"}, {"w"}).set_domain("own");
  body.Output("go", {}, kBool);
  body.Output("w", {2});
  onnx::NodeProto& loop = *function.add_node();
  loop.set_op_type("Loop");
  for (const char* name : {"", "", "a"}) loop.add_input(name);
  loop.add_output("b");
  AddGraph(loop, "body", body);
  EXPECT_THAT(Refusal(b), HasSubstr("function own.Again calls itself"));
}

TEST(Subgraphs, CanonicalModelsAreCheckedInside) {
  const auto imported = Import(Looped(Body()));
  ASSERT_TRUE(imported.ok()) << imported.status();
  const std::pair<const char*, std::function<void(proto::Model&)>> damages[] = {
      {"format 1", [](auto& m) { m.set_format_version(1); }},
      {"reads 'gone'",
       [](auto& m) { m.mutable_steps(0)->mutable_subgraphs(0)->mutable_steps(0)->set_inputs(0, "gone"); }},
      {"whose output 'gone'",
       [](auto& m) { m.mutable_steps(0)->mutable_subgraphs(0)->set_outputs(1, "gone"); }},
      {"from its input 9",
       [](auto& m) { m.mutable_steps(0)->mutable_subgraphs(0)->mutable_captures(0)->set_input(9); }},
      {"from its input 1",
       [](auto& m) { m.mutable_steps(0)->mutable_subgraphs(0)->mutable_captures(0)->set_input(1); }},
      {"a second time",
       [](auto& m) { m.mutable_steps(0)->mutable_subgraphs(0)->mutable_captures(0)->set_name("v"); }},
      {"has 0 subgraphs, expected 1",
       [](auto& m) {
         m.mutable_steps(0)->clear_subgraphs();
         m.set_format_version(1);
       }},
      {"has 1 subgraphs, expected 0", [](auto& m) { m.mutable_steps(0)->set_op("Neg"); }},
  };
  for (const auto& [said, damage] : damages) {
    proto::Model model = imported->model;
    damage(model);
    EXPECT_THAT(CheckModel(model, imported->weights.size()).message(), HasSubstr(said));
  }
}

TEST(Subgraphs, CanonicalModelsNestToALimit) {
  const auto imported = Import(Nested(kMaxSubgraphDepth));
  ASSERT_TRUE(imported.ok()) << imported.status();
  proto::Model model = imported->model;
  proto::Step outer = model.steps(0);
  for (proto::Subgraph& branch : *outer.mutable_subgraphs()) {
    branch.clear_steps();
    *branch.add_steps() = model.steps(0);
    branch.set_outputs(0, "y");
  }
  ASSERT_TRUE(CheckModel(model, imported->weights.size()).ok());
  *model.mutable_steps(0) = outer;
  EXPECT_THAT(CheckModel(model, imported->weights.size()).message(), HasSubstr("more than 8 deep"));
}

TEST(Subgraphs, AModelWithoutThemKeepsItsFormat) {
  const auto imported = Import(SmallNetwork());
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->model.format_version(), 1U);
}

// Loops, branches and weights, some bits of it flipped: an answer, or a model that is sound and runs or says why not.
TEST(Subgraphs, DamagedFilesGetAnAnswer) {
  OnnxBuilder body = Body();
  OnnxBuilder then, otherwise;
  then.Node("Neg", {"scaled"}, {"r"});
  then.Output("r", {2});
  otherwise.Node("Add", {"scaled", "w"}, {"r"});
  otherwise.Output("r", {2});
  body.Node("Less", {"i", "zero"}, {"early"});
  AddBranches(body.Node("If", {"early"}, {"chosen"}), then, otherwise);
  body.graph().mutable_output(1)->set_name("chosen");
  const std::string file = Looped(body).File();
  ASSERT_TRUE(Import(Looped(body)).ok());
  Random random(62);
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = file;
    for (std::uint64_t flips = 1 + random.Below(2); flips > 0; --flips)
      damaged[random.Below(damaged.size())] ^= static_cast<char>(1U << random.Below(8));
    ImportOptions tight;
    tight.max_weights = MiB(1);
    tight.max_folded = MiB(1);
    const auto imported = ImportOnnx(AsBytes(damaged), tight);
    if (!imported.ok()) {
      EXPECT_NE(imported.status().code(), absl::StatusCode::kInternal) << imported.status();
      EXPECT_FALSE(imported.status().message().empty());
      continue;
    }
    ++accepted;
    EXPECT_TRUE(CheckModel(imported->model, imported->weights.size()).ok());
    const std::vector<std::int64_t> most = {3};
    const std::vector<float> x = {1, 2};
    const proto::Model& sound = imported->model;
    if (sound.inputs_size() != 2 || sound.inputs(0).type() != proto::INT64 ||
        sound.inputs(0).shape_size() != 0 || sound.inputs(1).type() != proto::FP32 ||
        sound.inputs(1).shape_size() != 1 || sound.inputs(1).shape(0) != 2)
      continue;  // other inputs than the ones below
    EXPECT_NE(Answer(*imported, {BytesOf(most), BytesOf(x)}).status().code(), absl::StatusCode::kInternal);
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace troupe::gpu::test::subgraphs

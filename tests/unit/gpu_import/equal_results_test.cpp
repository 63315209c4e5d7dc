// A simplified model computes what the file says: both are run through plans on the same input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <new>

#include "base/random.hpp"
#include "gpu/engine/plan.hpp"
#include "gpu/import/import_model.hpp"
#include "tests/unit/gpu_import/onnx_builder.hpp"

namespace troupe::gpu::test {
namespace {

struct Aligned {
  explicit Aligned(std::size_t size)
      : data(static_cast<std::byte*>(::operator new[](size + 64, std::align_val_t{64}))) {
    std::memset(data.get(), 0, size + 64);
  }
  struct Delete {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte[], Delete> data;
};

// Runs a model with one FP32 input and one FP32 output.
absl::StatusOr<std::vector<float>> RunOnce(const ImportedModel& imported,
                                           const std::vector<std::int64_t>& shape,
                                           const std::vector<float>& input) {
  proto::TensorSpec spec = imported.model.inputs(0);
  spec.mutable_shape()->Assign(shape.begin(), shape.end());
  auto plan = Plan::Build(imported.model, imported.weights, {&spec, 1}, 1);
  if (!plan.ok()) return plan.status();
  const Aligned weights(imported.weights.size());
  if (!imported.weights.empty())
    std::memcpy(weights.data.get(), imported.weights.data(), imported.weights.size());
  const Aligned activations((*plan)->activation_bytes().count());
  const Aligned in(input.size() * sizeof(float));
  std::memcpy(in.data.get(), input.data(), input.size() * sizeof(float));
  const Aligned out((*plan)->output_bytes(0).count());
  PlanBindings bindings;
  bindings.weights = weights.data.get();
  bindings.activations = activations.data.get();
  bindings.inputs = {in.data.get()};
  bindings.outputs = {out.data.get()};
  if (auto ran = (*plan)->Run(bindings); !ran.ok()) return ran.status();
  std::vector<float> values((*plan)->output_bytes(0).count() / sizeof(float));
  std::memcpy(values.data(), out.data.get(), values.size() * sizeof(float));
  return values;
}

void ExpectEqualResults(const OnnxBuilder& builder, const std::vector<std::int64_t>& shape, int fewer_steps) {
  const std::string file = builder.File();
  const auto plain = ReadOnnx(AsBytes(file), {});
  const auto simple = ImportOnnx(AsBytes(file), {});
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE(simple.ok()) << simple.status();
  EXPECT_LE(simple->model.steps_size(), plain->model.steps_size() - fewer_steps);
  std::size_t count = 1;
  for (std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  Random random(3);
  std::vector<float> input(count);
  for (float& value : input) value = static_cast<float>(random.Uniform() * 4 - 2);
  const auto want = RunOnce(*plain, shape, input);
  const auto have = RunOnce(*simple, shape, input);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_TRUE(have.ok()) << have.status();
  ASSERT_EQ(want->size(), have->size());
  for (std::size_t i = 0; i < want->size(); ++i)
    EXPECT_NEAR((*have)[i], (*want)[i], 1e-5 + 1e-5 * std::abs((*want)[i])) << i;
}

TEST(EqualResults, SmallNetwork) {
  ExpectEqualResults(SmallNetwork(), {2, 3, 8, 8}, 4);
}

TEST(EqualResults, EveryActivationAfterAConvolution) {
  for (const char* op : {"Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Clip"}) {
    SCOPED_TRACE(op);
    OnnxBuilder b(14);
    b.Input("x", {1, 2, 5, 5});
    b.Weight("w", {4, 2, 3, 3}, [] {
      std::vector<float> values(72);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
      return values;
    }());
    b.Node("Conv", {"x", "w"}, {"c"});
    if (std::string(op) == "Clip") {
      b.Weight("lo", {}, {-0.5F});
      b.Weight("hi", {}, {6});
      b.Node(op, {"c", "lo", "hi"}, {"y"});
    } else {
      b.Node(op, {"c"}, {"y"});
    }
    b.Output("y", {1, 4, 3, 3});
    ExpectEqualResults(b, {1, 2, 5, 5}, 1);
  }
}

// y = If(condition, Relu(x) + w, nested If(false, x, -x)), with the same inner names in both branches.
OnnxBuilder Conditional(bool condition) {
  OnnxBuilder then;
  then.Node("Relu", {"x"}, {"inner"});
  then.Weight("w", {2}, {10, 20});
  then.Node("Add", {"inner", "w"}, {"out"});
  then.Output("out", {2});
  OnnxBuilder same, negated;
  same.Output("x", {2});
  negated.Node("Neg", {"inner"}, {"out"});
  negated.Output("out", {2});
  OnnxBuilder otherwise;
  otherwise.Node("Identity", {"x"}, {"inner"});
  otherwise.Node("Not", {"yes"}, {"no"});
  AddBranches(otherwise.Node("If", {"no"}, {"out"}), same, negated);
  otherwise.Output("out", {2});
  OnnxBuilder b;
  b.Input("x", {2});
  b.Weight("yes", {}, {}).set_data_type(onnx::TensorProto::BOOL);
  b.graph().mutable_initializer(0)->set_raw_data(std::string(1, 1));
  b.Node(condition ? "Identity" : "Not", {"yes"}, {"condition"});
  AddBranches(b.Node("If", {"condition"}, {"y"}, "choose"), then, otherwise);
  b.Output("y", {2});
  return b;
}

TEST(EqualResults, ConstantConditionsChooseABranch) {
  const std::pair<bool, std::vector<float>> cases[] = {{true, {13, 20}}, {false, {-3, 4}}};
  for (const auto& [condition, want] : cases) {
    const std::string file = Conditional(condition).File();
    const auto imported = ImportOnnx(AsBytes(file), {});
    ASSERT_TRUE(imported.ok()) << imported.status();
    const auto have = RunOnce(*imported, {2}, {3, -4});
    ASSERT_TRUE(have.ok()) << have.status();
    EXPECT_EQ(*have, want);
  }
}

TEST(EqualResults, OtherConditionsAreRefused) {
  OnnxBuilder b = Conditional(true);
  b.Input("asked", {}, onnx::TensorProto::BOOL);
  b.graph().mutable_node(1)->set_input(0, "asked");
  const std::string file = b.File();
  const absl::Status status = ImportOnnx(AsBytes(file), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), testing::HasSubstr("If (1 node, 'choose')"));
}

TEST(EqualResults, ShapeArithmetic) {
  OnnxBuilder b;
  b.Input("x", {-1, 4, 3});
  b.Node("Shape", {"x"}, {"s"});
  b.Ints("zero", {0});
  b.Node("Gather", {"s", "zero"}, {"n"});
  b.Ints("rest", {-1});
  SetInt(b.Node("Concat", {"n", "rest"}, {"t"}), "axis", 0);
  b.Node("Reshape", {"x", "t"}, {"r"});
  b.Node("Relu", {"r"}, {"y"});
  b.Output("y", {-1, 12});
  ExpectEqualResults(b, {3, 4, 3}, 0);
}

}  // namespace
}  // namespace troupe::gpu::test

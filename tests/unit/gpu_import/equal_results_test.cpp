// A simplified model computes the same as its file: both are run through plans on the same input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>

#include "base/random.hpp"
#include "gpu/engine/plan.hpp"
#include "gpu/import/import_model.hpp"
#include "gpu/import/model_check.hpp"
#include "tests/temporary_directory.hpp"
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

struct Tensor {
  proto::TensorSpec spec;
  std::string bytes;
};

// Runs `model` on `inputs`, one per model input.
absl::StatusOr<std::vector<Tensor>> RunOnce(const ImportedModel& imported,
                                            const std::vector<Tensor>& inputs) {
  std::vector<proto::TensorSpec> specs;
  for (const Tensor& input : inputs) specs.push_back(input.spec);
  auto plan = Plan::Build(imported.model, imported.weights, specs, 1);
  if (!plan.ok()) return plan.status();
  const Aligned weights(imported.weights.size());
  if (!imported.weights.empty())
    std::memcpy(weights.data.get(), imported.weights.data(), imported.weights.size());
  const Aligned activations((*plan)->activation_bytes().count());
  PlanBindings bindings;
  bindings.weights = weights.data.get();
  bindings.activations = activations.data.get();
  std::vector<Aligned> memory;
  for (const Tensor& input : inputs) {
    std::memcpy(memory.emplace_back(input.bytes.size()).data.get(), input.bytes.data(), input.bytes.size());
    bindings.inputs.push_back(memory.back().data.get());
  }
  for (std::size_t i = 0; i < (*plan)->outputs().size(); ++i)
    bindings.outputs.push_back(memory.emplace_back((*plan)->output_bytes(i).count()).data.get());
  const auto ran = (*plan)->Run(bindings);
  if (!ran.ok()) return ran.status();
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < ran->size(); ++i) {
    const proto::TensorSpec& spec = (*ran)[i];
    const auto count = CountElements(Shape(spec.shape().begin(), spec.shape().end()));
    if (!count.ok()) return count.status();
    outputs.push_back({spec, std::string(reinterpret_cast<const char*>(bindings.outputs[i]),
                                         static_cast<std::size_t>(*count) * ElementSize(spec.type()))});
  }
  return outputs;
}

std::vector<float> AsFloats(const Tensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(float));
  return values;
}

// Random floats in [-2, 2), integers in [0, 2), which are valid as indices, too.
Tensor RandomInput(proto::TensorSpec spec, std::int64_t dynamic, Random& random) {
  for (std::int64_t& size : *spec.mutable_shape()) size = size < 0 ? dynamic : size;
  Tensor tensor{spec, ""};
  const std::int64_t count = *CountElements(Shape(spec.shape().begin(), spec.shape().end()));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto real = static_cast<float>(random.Uniform() * 4 - 2);
    const auto whole = static_cast<std::int64_t>(random.Below(2));
    if (spec.type() == proto::FP32)
      tensor.bytes.append(reinterpret_cast<const char*>(&real), sizeof(real));
    else
      tensor.bytes.append(reinterpret_cast<const char*>(&whole), ElementSize(spec.type()));
  }
  return tensor;
}

void ExpectEqual(const Tensor& have, const Tensor& want) {
  ASSERT_EQ(have.spec.type(), want.spec.type());
  ASSERT_THAT(have.spec.shape(), testing::ElementsAreArray(want.spec.shape()));
  if (want.spec.type() != proto::FP32) {
    EXPECT_EQ(have.bytes, want.bytes);
    return;
  }
  const std::vector<float> left = AsFloats(have), right = AsFloats(want);
  for (std::size_t i = 0; i < right.size(); ++i) {
    ASSERT_TRUE(std::isfinite(right[i])) << i;
    ASSERT_NEAR(left[i], right[i], 1e-4 + 1e-4 * std::abs(right[i])) << i;
  }
}

void ExpectEqualResults(const std::string& file, std::int64_t dynamic, int fewer_steps) {
  const auto plain = ReadOnnx(AsBytes(file), {});
  const auto simple = ImportOnnx(AsBytes(file), {});
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE(simple.ok()) << simple.status();
  EXPECT_LE(simple->model.steps_size(), plain->model.steps_size() - fewer_steps);
  Random random(3);
  std::vector<Tensor> inputs;
  for (const proto::TensorSpec& input : plain->model.inputs())
    inputs.push_back(RandomInput(input, dynamic, random));
  const auto want = RunOnce(*plain, inputs);
  const auto have = RunOnce(*simple, inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_TRUE(have.ok()) << have.status();
  ASSERT_EQ(want->size(), have->size());
  for (std::size_t i = 0; i < want->size(); ++i) ExpectEqual((*have)[i], (*want)[i]);
}

TEST(EqualResults, SmallNetwork) {
  ExpectEqualResults(SmallNetwork().File(), 2, 6);
}

// The file's own name for both; with the name that its copy would have.
TEST(EqualResults, AnInputThatIsAnOutputIsHandedOn) {
  OnnxBuilder b(14);
  b.Input("x", {-1, 4});
  b.Node("Relu", {"x"}, {"x/output"});
  b.Output("x", {-1, 4});
  b.Output("x/output", {-1, 4});
  const auto imported = ImportOnnx(AsBytes(b.File()), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_TRUE(CheckModel(imported->model, imported->weights.size()).ok());
  Tensor input{imported->model.inputs(0), ""};
  input.spec.set_shape(0, 1);
  const std::vector<float> values = {-1, 2, -3, 4};
  input.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  const auto outputs = RunOnce(*imported, {input});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(outputs->size(), 2u);
  EXPECT_EQ((*outputs)[0].spec.name(), "x");
  EXPECT_EQ(AsFloats((*outputs)[0]), values);
  EXPECT_EQ((*outputs)[1].spec.name(), "x/output");
  EXPECT_EQ(AsFloats((*outputs)[1]), (std::vector<float>{0, 2, 0, 4}));
}

TEST(EqualResults, AModelMayHandOnItsInputAndDoNothingElse) {
  OnnxBuilder b(14);
  b.Input("x", {2});
  b.Output("x", {2});
  const auto imported = ImportOnnx(AsBytes(b.File()), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto outputs = RunOnce(*imported, {{imported->model.inputs(0), std::string("12345678")}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(outputs->at(0).bytes, "12345678");
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
    ExpectEqualResults(b.File(), 1, 1);
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
    const float x[] = {3, -4};
    const auto have =
        RunOnce(*imported, {{imported->model.inputs(0), {reinterpret_cast<const char*>(x), sizeof(x)}}});
    ASSERT_TRUE(have.ok()) << have.status();
    EXPECT_EQ(AsFloats((*have)[0]), want);
  }
}

TEST(EqualResults, OtherConditionsChooseWhenTheyAreKnown) {
  OnnxBuilder b = Conditional(true);
  b.Input("asked", {}, onnx::TensorProto::BOOL);
  b.graph().mutable_node(1)->set_input(0, "asked");
  const std::string file = b.File();
  for (const bool simplify : {false, true}) {
    const auto imported = simplify ? ImportOnnx(AsBytes(file), {}) : ReadOnnx(AsBytes(file), {});
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_EQ(imported->model.format_version(), 2U);
    ASSERT_TRUE(CheckModel(imported->model, imported->weights.size()).ok());
    const float x[] = {3, -4};
    for (const char asked : {char{1}, char{0}}) {
      const auto have =
          RunOnce(*imported, {{imported->model.inputs(0), {reinterpret_cast<const char*>(x), sizeof(x)}},
                              {imported->model.inputs(1), std::string(1, asked)}});
      ASSERT_TRUE(have.ok()) << have.status();
      EXPECT_EQ(AsFloats((*have)[0]),
                asked != 0 ? std::vector<float>({13, 20}) : std::vector<float>({-3, 4}));
    }
  }
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
  ExpectEqualResults(b.File(), 3, 0);
}

// Small networks of examples/make_models.py: residuals, attention, detection.
TEST(EqualResults, MadeNetworks) {
  namespace fs = std::filesystem;
  const troupe::test::TemporaryDirectory place;
  const std::string& folder = place.path();
  const std::string command = "./examples/make_models.py --output " + folder + " --size 32 ";
  if (std::system((command + "mlp noop bert-tiny resnet18 > /dev/null 2>&1").c_str()) != 0 ||
      std::system(("./examples/make_models.py --output " + folder + " --size 64 detector > /dev/null 2>&1")
                      .c_str()) != 0)
    GTEST_SKIP() << "examples/make_models.py needs python3-onnx";
  const std::pair<const char*, int> networks[] = {
      {"noop", 0}, {"mlp", 5}, {"bert-tiny", 10}, {"resnet18", 40}, {"detector", 6}};
  for (const auto& [name, fewer] : networks) {
    SCOPED_TRACE(name);
    std::ifstream file(fs::path(folder) / (std::string(name) + ".onnx"), std::ios::binary);
    ExpectEqualResults({std::istreambuf_iterator<char>(file), {}}, 2, fewer);
  }
}

}  // namespace
}  // namespace troupe::gpu::test

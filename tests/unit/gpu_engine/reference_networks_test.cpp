// The reference networks give their reference outputs, on row-major and on packed weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

#include "base/check.hpp"
#include "base/random.hpp"
#include "base/sanitizer.hpp"
#include "base/status.hpp"
#include "gpu/import/import_model.hpp"
#include "gpu/import/onnx_reader.hpp"
#include "gpu/ops/layout.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu {
namespace {

std::filesystem::path SharedDirectory() {
  const char* named = std::getenv("TROUPE_SHARED_DIR");
  return named != nullptr ? std::filesystem::path(named) : std::filesystem::path("../shared");
}

std::vector<std::byte> ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

// The elements of a serialised onnx.TensorProto whose data is raw_data, or nothing that matches `count`.
std::vector<float> ReadReference(const std::filesystem::path& path, std::size_t count) {
  const std::vector<std::byte> file = ReadFile(path);
  std::vector<float> values(count);
  if (file.size() < count * sizeof(float)) return {};
  // The field is the last but for the name: find its tag (9, length-delimited) and length.
  for (std::size_t i = 0; i + 3 + count * sizeof(float) <= file.size(); ++i) {
    const auto at = [&](std::size_t k) { return static_cast<std::size_t>(file[i + k]); };
    if (at(0) != 0x4A || (at(1) & 0x7F) + (at(2) << 7) != count * sizeof(float)) continue;
    std::memcpy(values.data(), file.data() + i + 3, count * sizeof(float));
    return values;
  }
  return {};
}

// What a network answers to its reference input; `packed`: in which precision it is packed first.
absl::StatusOr<std::vector<float>> AnswerOf(const std::filesystem::path& path,
                                            std::optional<proto::Precision> packed) {
  TROUPE_ASSIGN_OR_RETURN(auto imported, ReadOnnx(ReadFile(path), ImportOptions()));
  const std::vector<proto::TensorSpec> inputs(imported.model.inputs().begin(), imported.model.inputs().end());
  if (inputs.size() != 1) return absl::InternalError("a reference network has one input");
  if (packed) {
    imported.model.set_precision(*packed);
    TROUPE_ASSIGN_OR_RETURN(auto result, PackModel(imported.model, imported.weights, inputs));
    imported.model = std::move(result.model);
    imported.weights = std::move(result.weights);
  }
  TROUPE_ASSIGN_OR_RETURN(const auto plan, Plan::Build(imported.model, imported.weights, inputs, 2));
  std::size_t count = 1;
  for (auto dim : inputs[0].shape()) count *= static_cast<std::size_t>(dim);
  std::vector<float> input(count);
  for (std::size_t i = 0; i < count; ++i)
    input[i] = static_cast<float>(static_cast<double>(i) / static_cast<double>(count));
  TROUPE_ASSIGN_OR_RETURN(const auto result,
                          RunPlan(*plan, imported.weights, {std::as_bytes(std::span(input))}));
  return result.As<float>(0);
}

class ReferenceNetwork : public testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  void SetUp() override {
    const auto folder = SharedDirectory() / "models";
    name_ = std::get<0>(GetParam());
    path_ = folder / (name_ + ".onnx");
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << path_ << " is absent; set TROUPE_SHARED_DIR";
    reference_ = folder / (name_ + "_output_0.pb");
  }
  std::string name_;
  std::filesystem::path path_, reference_;
};

TEST_P(ReferenceNetwork, MatchesItsReferenceOutput) {
  const bool packed = std::get<1>(GetParam());
  const auto values = AnswerOf(path_, packed ? std::optional(proto::PRECISION_FP32) : std::nullopt);
  ASSERT_TRUE(values.ok()) << values.status();
  const auto expected = ReadReference(reference_, values->size());
  ASSERT_EQ(values->size(), expected.size());
  const double relative = name_.find("densenet") != std::string::npos ? 2e-3 : 1e-3;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_LE(std::abs((*values)[i] - expected[i]), 1e-7 + relative * std::abs(expected[i]))
        << "element " << i << ": " << (*values)[i] << ", expected " << expected[i];
  }
}

// Their weights are few numbers, many of which BF16 has exactly: how far other networks' answers are away is tested by
// onnx_opsets_test (InBf16).
TEST_P(ReferenceNetwork, IsCloseInBf16) {
  if (!std::get<1>(GetParam())) GTEST_SKIP() << "weights become BF16 when they are packed";
  if (!ComputesBf16()) GTEST_SKIP() << "this processor does not compute in BF16";
  const auto values = AnswerOf(path_, proto::PRECISION_BF16);
  ASSERT_TRUE(values.ok()) << values.status();
  const auto expected = ReadReference(reference_, values->size());
  ASSERT_EQ(values->size(), expected.size());
  double most = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    most = std::max<double>(most, std::abs((*values)[i] - expected[i]));
    largest = std::max<double>(largest, std::abs(expected[i]));
  }
  EXPECT_LT(most, 0.01 * largest);
  EXPECT_EQ(std::ranges::max_element(*values) - values->begin(),
            std::ranges::max_element(expected) - expected.begin());
}

// A network as it is served: packed, with the plan that all its runs share.
struct ServedNetwork {
  explicit ServedNetwork(const std::filesystem::path& path) {
    auto imported = ReadOnnx(ReadFile(path), ImportOptions());
    TROUPE_CHECK(imported.ok(), "the network is imported");
    const std::vector<proto::TensorSpec> inputs(imported->model.inputs().begin(),
                                                imported->model.inputs().end());
    packed = *PackModel(imported->model, imported->weights, inputs);
    plan = *Plan::Build(packed.model, packed.weights, inputs, 1);
    for (auto dim : inputs[0].shape()) count *= static_cast<std::size_t>(dim);
  }
  // What it answers to the question of this number.
  [[nodiscard]] std::vector<std::vector<std::byte>> Ask(std::size_t question) const {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>((i * (question + 1)) % 1009) / 1009.0F;
    return RunPlan(*plan, packed.weights, {std::as_bytes(std::span(values))})->data;
  }

  PackedModel packed;
  std::unique_ptr<Plan> plan;
  std::size_t count = 1;  // elements of its input
};

// Instances of a function share its plan: each gives, byte for byte, what it gives alone, also beside the runs of another
// network.
TEST_P(ReferenceNetwork, InstancesOfOnePlanDoNotDisturbEachOther) {
  const auto [name, packed] = GetParam();
  if (!packed) GTEST_SKIP() << "the packed model is the one that is served";
  const auto folder = SharedDirectory() / "models";
  const std::string other_name =
      std::string(name) == "light_squeezenet" ? "light_inception_v1" : "light_squeezenet";
  for (const std::string& file : {std::string(name), other_name})
    if (!std::filesystem::exists(folder / (file + ".onnx")))
      GTEST_SKIP() << folder / (file + ".onnx") << " is absent; set TROUPE_SHARED_DIR";
  const ServedNetwork network(folder / (std::string(name) + ".onnx"));
  const ServedNetwork other(folder / (other_name + ".onnx"));
  constexpr std::size_t kInstances = 3, kRounds = 3;
  const auto of = [&](std::size_t k) -> const ServedNetwork& { return k < kInstances ? network : other; };
  std::vector<std::vector<std::vector<std::byte>>> alone;
  for (std::size_t k = 0; k <= kInstances; ++k) alone.push_back(of(k).Ask(k));
  std::vector<std::thread> threads;
  std::vector<std::size_t> equal(kInstances + 1, 0);
  for (std::size_t k = 0; k <= kInstances; ++k)
    threads.emplace_back([&, k] {
      for (std::size_t round = 0; round < kRounds; ++round) equal[k] += of(k).Ask(k) == alone[k] ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<std::size_t>(kInstances + 1, kRounds));
}

// The same network for any number of images, without a softmax at its end, which would hide differences.
void OpenBatch(ImportedModel& imported) {
  proto::Model& model = imported.model;
  if (const proto::Step last = *model.steps().rbegin(); last.op() == "Softmax") {
    model.mutable_outputs(0)->set_name(last.inputs(0));
    model.mutable_steps()->RemoveLast();
  }
  for (proto::TensorSpec& input : *model.mutable_inputs()) input.set_shape(0, -1);
  for (proto::TensorSpec& output : *model.mutable_outputs()) output.set_shape(0, -1);
  for (const proto::Step& step : model.steps()) {
    if (step.op() != "Reshape") continue;
    for (const proto::Weight& weight : model.weights()) {
      if (weight.name() != step.inputs(1)) continue;
      std::int64_t rows = 0;
      std::byte* const first = imported.weights.data() + weight.offset();
      std::memcpy(&rows, first, sizeof(rows));
      if (rows == 1) std::memset(first, 0, sizeof(rows));  // as many as come in
    }
  }
}

// Weights that differ, where the file's are all alike: so images have different answers.
void DrawWeights(ImportedModel& imported, Random& random) {
  for (const proto::Weight& weight : imported.model.weights()) {
    if (weight.type() != proto::FP32 || weight.shape_size() < 2) continue;
    double inputs = 1;
    for (int i = 1; i < weight.shape_size(); ++i) inputs *= static_cast<double>(weight.shape(i));
    const double width = std::sqrt(6.0 / inputs);  // a variance of 2 / inputs
    std::byte* at = imported.weights.data() + weight.offset();
    for (std::uint64_t i = 0; i < weight.length() / sizeof(float); ++i, at += sizeof(float)) {
      const auto value = static_cast<float>(width * (2 * random.Uniform() - 1));
      std::memcpy(at, &value, sizeof(value));
    }
  }
}

std::vector<float> RunRows(const ImportedModel& imported, std::span<const float> images, std::int64_t rows) {
  proto::TensorSpec input = imported.model.inputs(0);
  input.set_shape(0, rows);
  auto plan = Plan::Build(imported.model, imported.weights, {&input, 1}, 2);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  const auto result = RunPlan(**plan, imported.weights, {std::as_bytes(images)});
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return {};
  EXPECT_EQ(result->specs[0].shape(0), rows);
  return result->As<float>(0);
}

TEST_P(ReferenceNetwork, ABatchGivesEachImageTheAnswerOfItsOwnRun) {
  const auto [name, packed] = GetParam();
  if (!packed) GTEST_SKIP() << "the packed model is the one that is served";
  const auto path = SharedDirectory() / "models" / (std::string(name) + ".onnx");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent; set TROUPE_SHARED_DIR";
  auto imported = ImportOnnx(ReadFile(path), ImportOptions());
  ASSERT_TRUE(imported.ok()) << imported.status();
  Random random(5);
  DrawWeights(*imported, random);
  OpenBatch(*imported);
  proto::TensorSpec one = imported->model.inputs(0);
  one.set_shape(0, 1);
  auto result = PackModel(imported->model, imported->weights, {&one, 1});
  ASSERT_TRUE(result.ok()) << result.status();
  imported->model = std::move(result->model);
  imported->weights = std::move(result->weights);
  std::size_t count = 1;
  for (auto dim : one.shape()) count *= static_cast<std::size_t>(dim);
  constexpr std::size_t kMost = 8;
  std::vector<float> images(kMost * count);
  for (float& value : images) value = static_cast<float>(random.Uniform());
  std::vector<float> alone;
  for (std::size_t k = 0; k < kMost; ++k) {
    const std::vector<float> answer = RunRows(*imported, std::span(images).subspan(k * count, count), 1);
    alone.insert(alone.end(), answer.begin(), answer.end());
  }
  const auto answer = static_cast<std::ptrdiff_t>(alone.size() / kMost);
  EXPECT_FALSE(std::equal(alone.begin(), alone.begin() + answer, alone.begin() + answer))
      << "the images have different answers";
  float largest = 1;
  for (const float value : alone) largest = std::max(largest, std::abs(value));
  for (const std::size_t rows : {2, 4, 8}) {
    const std::vector<float> together =
        RunRows(*imported, std::span(images).first(rows * count), static_cast<std::int64_t>(rows));
    ASSERT_EQ(together.size() * kMost, alone.size() * rows);
    for (std::size_t i = 0; i < together.size(); ++i)
      ASSERT_LE(std::abs(together[i] - alone[i]), 1e-5F * largest) << rows << " images, element " << i;
  }
}

std::string NameOf(const testing::TestParamInfo<ReferenceNetwork::ParamType>& info) {
  return std::string(std::get<0>(info.param)) + (std::get<1>(info.param) ? "_packed" : "_row_major");
}

// A sanitizer's build computes two of them: it takes minutes for the others, which have the same operators.
std::vector<const char*> Networks() {
  if (kSanitized) return {"light_inception_v1", "light_squeezenet"};
  return {"light_resnet50", "light_densenet121", "light_inception_v1", "light_squeezenet", "light_vgg19"};
}

INSTANTIATE_TEST_SUITE_P(All, ReferenceNetwork,
                         testing::Combine(testing::ValuesIn(Networks()), testing::Bool()), NameOf);

}  // namespace
}  // namespace troupe::gpu

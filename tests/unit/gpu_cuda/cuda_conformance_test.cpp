// ONNX's cases on the GPU's kernels: each case that the operator table declares passes, or is refused by
// name. The fake driver runs the kernels' bodies on the host; with TROUPE_CUDA_DRIVER the GPU runs them.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gpu/coverage/coverage.hpp"
#include "gpu/cuda/gpu_kernel.hpp"
#include "gpu/import/cuda_check.hpp"
#include "gpu/import/onnx_reader.hpp"
#include "gtest/gtest.h"
#include "tests/conformance/declared.hpp"
#include "tests/conformance/run_case.hpp"
#include "tests/unit/gpu_cuda/fake_cuda.hpp"
#include "tests/unit/gpu_cuda/gpu_plan.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu::test {
namespace {

// The number of cases that passed when this was written; fewer would be a step back.
constexpr std::size_t kLeastPassed = 650;
constexpr std::size_t kLeastPassedOfOpsets = 515;

struct Tally {
  std::size_t passed = 0;
  std::size_t declared = 0;
  std::set<std::string> operators;  // of cases that passed
};

// What `function check` says of the model and what the device says are the same. Of control flow the device names the whole
// step, and a check what stands in it. A library's own refusals are known on the device alone.
void ExpectJudgedAlike(const proto::Model& model, std::span<const std::byte> weights,
                       std::span<const proto::TensorSpec> inputs, const absl::Status& prepared) {
  const auto judged = CudaRefusals(model, weights, inputs);
  if (prepared.ok()) {
    ASSERT_TRUE(judged.ok()) << judged.status();
    EXPECT_THAT(*judged, testing::IsEmpty());
    return;
  }
  const std::string said(prepared.message());
  if (!absl::IsUnimplemented(prepared) || absl::StrContains(said, "a convolution of this form")) return;
  ASSERT_TRUE(judged.ok()) << judged.status() << ", and the device: " << said;
  ASSERT_THAT(*judged, testing::Not(testing::IsEmpty())) << said;
  if (said.starts_with("Loop") || said.starts_with("Scan") || said.starts_with("If")) return;
  const std::size_t colon = std::min(said.find(": "), said.size());
  EXPECT_THAT(judged->front(), testing::StartsWith(said.substr(0, colon)));
  EXPECT_THAT(judged->front(), testing::EndsWith(said.substr(colon)));
}

// Each declared case passes, or is refused by name.
Tally RunAll(const std::vector<conformance::OnnxCase>& cases) {
  Tally tally;
  const CudaOpened opened = cuda::Open(SmallOptions());
  EXPECT_NE(opened.device, nullptr) << opened.why;
  if (opened.device == nullptr) return tally;
  const std::shared_ptr<Stream> stream = opened.device->MakeStream();
  const conformance::RunOptions options{.make = [&](const proto::Model& model,
                                                    std::span<const std::byte> weights,
                                                    std::span<const proto::TensorSpec> inputs, int) {
    auto plan = GpuPlan::Make(*opened.device, model, weights, inputs, proto::PRECISION_FP32, stream);
    ExpectJudgedAlike(model, weights, inputs, plan.status());
    return plan;
  }};
  std::map<std::string, std::size_t> refused;
  for (const conformance::OnnxCase& test : cases) {
    if (!conformance::WhyNotDeclared(test).empty()) continue;
    ++tally.declared;
    conformance::RunNotes notes;
    const absl::Status status = conformance::RunCase(test, notes, options);
    if (absl::IsUnimplemented(status)) {
      EXPECT_TRUE(absl::StrContains(status.message(), "no kernel of the GPU covers") ||
                  absl::StrContains(status.message(), "has texts (BYTES), which real GPUs do not compute"))
          << test.name << ": " << status;
      const std::string why(status.message());
      ++refused[absl::StrCat(why.substr(0, why.find(' ')),
                             why.substr(std::min(why.find(": no"), why.size())))];
      continue;
    }
    EXPECT_TRUE(status.ok()) << test.name << ": " << status;
    tally.passed += status.ok() ? 1 : 0;
    for (const auto& node : test.model.graph().node()) tally.operators.insert(node.op_type());
  }
  for (const auto& [why, cases_of_it] : refused) std::cout << cases_of_it << " " << why << "\n";
  std::cout << tally.passed << " of " << tally.declared << " declared cases run on the GPU's kernels\n";
  return tally;
}

// The plug-in has a kernel for each operator that is judged to have one, and for no other.
TEST(CudaConformance, JudgesAndKernelsAreOfTheSameOperators) {
  std::vector<std::string_view> kernels;
  for (const auto& [name, make] : cuda::GpuKernels()) kernels.push_back(name);
  EXPECT_EQ(kernels, CudaOperators());
}

TEST(CudaConformance, EachDeclaredCasePassesOrIsRefusedByName) {
  const auto cases = conformance::LoadCases();
  if (cases.empty())
    GTEST_SKIP() << "no cases in " << conformance::TestDataRoot() << ": install libonnx-testdata";
  const Tally tally = RunAll(cases);
  EXPECT_GE(tally.passed, kLeastPassed);
  for (const char* const op :
       {"Conv",          "MatMul",         "Gemm",      "Softmax",    "LayerNormalization",
        "Gather",        "Transpose",      "Concat",    "ReduceMean", "ArgMax",
        "ConvTranspose", "GatherElements", "ScatterND", "OneHot",     "QuantizeLinear",
        "MaxPool",       "AveragePool",    "Resize",    "Slice",      "Where"})
    EXPECT_TRUE(tally.operators.contains(op)) << op;
}

// What opsets 18 to 23 changed.
TEST(CudaConformance, EachCaseOfNewerOpsetsPassesOrIsRefusedByName) {
  const auto cases = conformance::LoadOpsetCases();
  ASSERT_FALSE(cases.empty());
  EXPECT_GE(RunAll(cases).passed, kLeastPassedOfOpsets);
}

class CudaNetwork : public testing::TestWithParam<const char*> {};

// The network's outputs are compared with those of the CPU's plan for the same input.
TEST_P(CudaNetwork, GivesWhatTheCpuGives) {
  if (!RealDriver()) GTEST_SKIP() << "without a GPU a network takes minutes: tests/gpu/run.sh runs it";
  const char* const named = std::getenv("TROUPE_SHARED_DIR");
  const auto path = std::filesystem::path(named == nullptr ? "../shared" : named) / "models" /
                    (std::string(GetParam()) + ".onnx");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent; set TROUPE_SHARED_DIR";
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto imported = ReadOnnx(std::as_bytes(std::span(text)), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  const std::vector<proto::TensorSpec> specs(imported->model.inputs().begin(),
                                             imported->model.inputs().end());
  CudaOptions options = SmallOptions();
  options.memory = GiB(2);
  const CudaOpened opened = cuda::Open(options);
  ASSERT_NE(opened.device, nullptr) << opened.why;
  auto gpu = GpuPlan::Make(*opened.device, imported->model, imported->weights, specs);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  auto cpu = Plan::Build(imported->model, imported->weights, specs, 2);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  std::int64_t count = 1;
  for (const std::int64_t dim : specs[0].shape()) count *= dim;
  std::vector<float> input(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < input.size(); ++i)
    input[i] = static_cast<float>(static_cast<double>(i) / static_cast<double>(count));
  const auto run = [&](Plan& plan) {
    const auto result = RunPlan(plan, imported->weights, {std::as_bytes(std::span(input))});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->As<float>(0) : std::vector<float>();
  };
  const std::vector<float> there = run(**gpu);
  const std::vector<float> here = run(**cpu);
  ASSERT_EQ(there.size(), here.size());
  for (std::size_t i = 0; i < here.size(); ++i)
    ASSERT_LE(std::abs(there[i] - here[i]), 1e-7 + 2e-3 * std::abs(here[i])) << "element " << i;
}

INSTANTIATE_TEST_SUITE_P(All, CudaNetwork,
                         testing::Values("light_resnet50", "light_densenet121", "light_inception_v1",
                                         "light_squeezenet", "light_vgg19"));

}  // namespace
}  // namespace troupe::gpu::test

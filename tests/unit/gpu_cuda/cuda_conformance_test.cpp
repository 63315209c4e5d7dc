// ONNX's cases on the GPU's kernels: each that the operator table declares passes, or is refused by name. The
// fake driver runs the kernels' bodies on the host; with TROUPE_CUDA_DRIVER the GPU does.
#include <iostream>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/declared.hpp"
#include "tests/conformance/run_case.hpp"
#include "tests/unit/gpu_cuda/fake_cuda.hpp"
#include "tests/unit/gpu_cuda/gpu_plan.hpp"

namespace troupe::gpu::test {
namespace {

// Passed when this was written; fewer would be a step back.
constexpr std::size_t kLeastPassed = 406;

TEST(CudaConformance, EachDeclaredCasePassesOrIsRefusedByName) {
  const auto cases = conformance::LoadCases();
  if (cases.empty())
    GTEST_SKIP() << "no cases in " << conformance::TestDataRoot() << ": install libonnx-testdata";
  const CudaOpened opened = cuda::Open(SmallOptions());
  ASSERT_NE(opened.device, nullptr) << opened.why;
  const auto make = [&](const proto::Model& model, std::span<const std::byte> weights,
                        std::span<const proto::TensorSpec> inputs,
                        int) { return GpuPlan::Make(*opened.device, model, weights, inputs); };
  std::size_t passed = 0;
  std::size_t declared = 0;
  std::set<std::string> operators;  // of cases that passed
  for (const conformance::OnnxCase& test : cases) {
    if (!conformance::WhyNotDeclared(test).empty()) continue;
    ++declared;
    conformance::RunNotes notes;
    const absl::Status status = conformance::RunCase(test, notes, make);
    if (absl::IsUnimplemented(status)) {
      EXPECT_TRUE(absl::StrContains(status.message(), "no kernel of the GPU covers"))
          << test.name << ": " << status;
      continue;
    }
    EXPECT_TRUE(status.ok()) << test.name << ": " << status;
    passed += status.ok() ? 1 : 0;
    for (const auto& node : test.model.graph().node()) operators.insert(node.op_type());
  }
  EXPECT_GE(passed, kLeastPassed);
  for (const char* const op :
       {"Conv", "MatMul", "Gemm", "Softmax", "LayerNormalization", "Gather", "Transpose", "Concat",
        "ReduceMean", "MaxPool", "AveragePool", "Resize", "Slice", "Where"})
    EXPECT_TRUE(operators.contains(op)) << op;
  std::cout << passed << " of " << declared << " declared cases run on the GPU's kernels\n";
}

}  // namespace
}  // namespace troupe::gpu::test

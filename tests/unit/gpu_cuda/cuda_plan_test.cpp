// What the GPU's plans do beyond the contract of devices: the precision in which they compute, and the replay
// of launches that come again.
#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gpu/cuda/fake/fake_driver.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_cuda/fake_cuda.hpp"
#include "tests/unit/gpu_cuda/gpu_plan.hpp"
#include "tests/unit/gpu_engine/model_builder.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::Pointwise;

constexpr float kNine = 1 + 0x1p-9F;     // fits TF32 and FP16, not BF16
constexpr float kTwelve = 1 + 0x1p-12F;  // fits FP32 alone
constexpr float kLarge = 0x1p17F;        // beyond FP16
constexpr float kInfinity = std::numeric_limits<float>::infinity();

cuda::fake::FakeGraphCounts GraphCounts() {
  void* const library = dlopen(DriverLibrary().c_str(), RTLD_NOW);
  cuda::fake::FakeGraphCounts counts;
  reinterpret_cast<void (*)(cuda::fake::FakeGraphCounts*)>(dlsym(library, "FakeCudaGraphCounts"))(&counts);
  return counts;
}

class CudaPrecision : public testing::Test {
 protected:
  void SetUp() override { OpenAnew(); }
  // Each lane has a workspace for as long as its device is open.
  void OpenAnew() {
    opened_ = CudaOpened();
    opened_ = cuda::Open(SmallOptions());
    ASSERT_NE(opened_.device, nullptr) << opened_.why;
  }
  std::vector<float> Run(ModelBuilder& builder, proto::Precision precision, const std::vector<float>& in) {
    auto plan =
        GpuPlan::Make(*opened_.device, builder.model(), builder.weights(), builder.input_specs(), precision);
    if (!plan.ok()) {
      ADD_FAILURE() << plan.status();
      return {};
    }
    const auto result = RunPlan(**plan, builder.weights(), {std::as_bytes(std::span(in))});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->As<float>(0) : std::vector<float>();
  }
  // A real GPU may compute products as small as these in a higher precision than was asked for.
  void Expect(const std::vector<float>& got, const std::vector<float>& rounded, float unit) {
    if (!RealDriver()) {
      EXPECT_THAT(got, Pointwise(testing::FloatEq(), rounded));
      return;
    }
    ASSERT_EQ(got.size(), rounded.size());
    EXPECT_NEAR(got[0], kNine, unit);
    EXPECT_NEAR(got[1], kTwelve, unit);
  }
  CudaOpened opened_;
};

TEST_F(CudaPrecision, ProductsRoundTheirOperandsToWhatTheFunctionAllows) {
  for (const char* const op : {"MatMul", "Gemm"}) {
    OpenAnew();
    ModelBuilder builder;
    builder.Step(op, {builder.Input("x", {3, 1}), builder.Floats({1, 1}, {1})}, "y");
    builder.Output("y", {3, 1});
    const std::vector<float> in = {kNine, kTwelve, kLarge};
    Expect(Run(builder, proto::PRECISION_FP32, in), {kNine, kTwelve, kLarge}, 0);
    Expect(Run(builder, proto::PRECISION_TF32, in), {kNine, 1, kLarge}, 0x1p-10F);
    Expect(Run(builder, proto::PRECISION_BF16, in), {1, 1, kLarge}, 0x1p-7F);
    Expect(Run(builder, proto::PRECISION_FP16, in), {kNine, 1, kInfinity}, 0x1p-10F);
  }
}

TEST_F(CudaPrecision, ProductsWithAnInnerDimensionOf0AreZerosAndWhatIsAdded) {
  const auto run = [&](const std::string& op, bool adds, bool batched) {
    OpenAnew();
    ModelBuilder builder;
    const Shape left = batched ? Shape{2, 2, 0} : Shape{2, 0};
    const Shape right = batched ? Shape{2, 0, 3} : Shape{0, 3};
    proto::Step& step = builder.Step(op, {builder.Input("x", left), builder.Floats(right, {})}, "y");
    if (adds) step.add_inputs(builder.Floats({3}, {1, -2, 3}));
    if (op == "Gemm" && adds) {
      ModelBuilder::SetFloat(step, "beta", 2);
      step.set_activation("Relu");
    }
    builder.Output("y", batched ? Shape{2, 2, 3} : Shape{2, 3});
    return Run(builder, proto::PRECISION_FP32, {});
  };
  EXPECT_EQ(run("MatMul", false, false), std::vector<float>(6, 0));
  EXPECT_EQ(run("MatMul", false, true), std::vector<float>(12, 0));
  EXPECT_EQ(run("Gemm", false, false), std::vector<float>(6, 0));
  EXPECT_EQ(run("Gemm", true, false), (std::vector<float>{2, 0, 6, 2, 0, 6}));
}

// cuDNN has no BF16 for tensors in FP32, so TF32 stands in for it, which rounds less.
TEST_F(CudaPrecision, ConvolutionsRoundNoMoreThanTheFunctionAllows) {
  ModelBuilder builder;
  builder.Step("Conv", {builder.Input("x", {1, 1, 1, 3}), builder.Floats({1, 1, 1, 1}, {1})}, "y");
  builder.Output("y", {1, 1, 1, 3});
  const std::vector<float> in = {kNine, kTwelve, kLarge};
  Expect(Run(builder, proto::PRECISION_FP32, in), {kNine, kTwelve, kLarge}, 0);
  Expect(Run(builder, proto::PRECISION_TF32, in), {kNine, 1, kLarge}, 0x1p-10F);
  Expect(Run(builder, proto::PRECISION_BF16, in), {kNine, 1, kLarge}, 0x1p-7F);
  Expect(Run(builder, proto::PRECISION_FP16, in), {kNine, 1, kInfinity}, 0x1p-10F);
}

// cuBLASLt computes the step behind a product together with it; without cuBLASLt a kernel of our own computes
// it.
TEST_F(CudaPrecision, ProductsWithBiasAndReluAreTheSameFusedAndApart) {
  if (RealDriver()) GTEST_SKIP() << "only the fake driver tells what was launched";
  const auto run = [&](bool transpose, bool batched, std::uint64_t& nodes) {
    ModelBuilder builder;
    const Shape left = batched ? Shape{2, 3, 5} : (transpose ? Shape{5, 3} : Shape{3, 5});
    const Shape right = batched ? Shape{2, 5, 4} : (transpose ? Shape{4, 5} : Shape{5, 4});
    const std::vector<float> in = builder.RandomValues(left);
    proto::Step& step =
        builder.Step(batched ? "MatMul" : "Gemm",
                     {builder.Input("x", left), builder.Random(right), builder.Random({4})}, "y");
    step.set_activation("Relu");
    if (!batched) {
      ModelBuilder::Set(step, "transA", transpose ? 1 : 0);
      ModelBuilder::Set(step, "transB", transpose ? 1 : 0);
      ModelBuilder::SetFloat(step, "alpha", 0.5F);
    }
    builder.Output("y", batched ? Shape{2, 3, 4} : Shape{3, 4});
    const auto before = GraphCounts();
    const std::vector<float> out = Run(builder, proto::PRECISION_FP32, in);
    nodes = GraphCounts().nodes - before.nodes;
    auto cpu = Plan::Build(builder.model(), builder.weights(), builder.input_specs(), 1);
    EXPECT_TRUE(cpu.ok()) << cpu.status();
    const auto expected = RunPlan(**cpu, builder.weights(), {std::as_bytes(std::span(in))});
    EXPECT_THAT(out, Pointwise(testing::FloatNear(1e-5F), expected->As<float>(0)));
    return out;
  };
  for (const auto& [transpose, batched] : {std::pair(false, false), {true, false}, {false, true}}) {
    std::uint64_t fused = 0;
    std::uint64_t apart = 0;
    const std::vector<float> together = run(transpose, batched, fused);
    const CudaOpened with = std::exchange(opened_, CudaOpened());
    CudaOptions options = SmallOptions();
    options.blas_lt = "libno_such_library.so";
    opened_ = cuda::Open(options);
    ASSERT_NE(opened_.device, nullptr) << opened_.why;
    EXPECT_THAT(run(transpose, batched, apart), Pointwise(testing::FloatNear(1e-6F), together));
    EXPECT_EQ(fused, 2u) << "recorded when it was made, and when it came again";
    EXPECT_GT(apart, fused);
    opened_ = CudaOpened();
    opened_ = cuda::Open(SmallOptions());
    ASSERT_NE(opened_.device, nullptr) << opened_.why;
  }
}

// Storage, sums and all other arithmetic are FP32.
TEST_F(CudaPrecision, WhatIsNoProductStaysFp32) {
  ModelBuilder builder;
  builder.Step("Add", {builder.Input("x", {2}), builder.Floats({2}, {0, 0})}, "y");
  builder.Output("y", {2});
  EXPECT_THAT(Run(builder, proto::PRECISION_FP16, {kTwelve, kLarge}), ElementsAre(kTwelve, kLarge));
}

// TopK for a K that is known ahead, which ONNX's cases do not have; equal elements keep their order, and NaN
// is above all.
TEST(CudaTopK, TheFirstOfEachLineComeInOrder) {
  const CudaOpened opened = cuda::Open(SmallOptions());
  ASSERT_NE(opened.device, nullptr) << opened.why;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> in = {3, 1, 3, -kInfinity, 2, 7, nan, 0, kInfinity, 1};
  for (int i = 0; i < 90; ++i) in.push_back(static_cast<float>(i * 37 % 50));
  for (const std::int64_t largest : {1, 0}) {
    for (const std::int64_t axis : {1, 0}) {
      ModelBuilder builder;
      const std::int64_t k = axis == 1 ? 10 : 3;
      proto::Step& step = builder.Step("TopK", {builder.Input("x", {4, 25}), builder.Ints({k})}, "values");
      step.add_outputs("indices");
      ModelBuilder::Set(step, "largest", largest);
      ModelBuilder::Set(step, "axis", axis);
      const Shape shape = axis == 1 ? Shape{4, k} : Shape{k, 25};
      builder.Output("values", shape);
      builder.Output("indices", shape, proto::INT64);
      const auto run = [&](absl::StatusOr<std::unique_ptr<Plan>> plan) {
        EXPECT_TRUE(plan.ok()) << plan.status();
        auto result = RunPlan(**plan, builder.weights(), {std::as_bytes(std::span(in))});
        EXPECT_TRUE(result.ok()) << result.status();
        return *std::move(result);
      };
      const PlanResult there =
          run(GpuPlan::Make(*opened.device, builder.model(), builder.weights(), builder.input_specs()));
      const PlanResult here = run(Plan::Build(builder.model(), builder.weights(), builder.input_specs(), 1));
      EXPECT_EQ(there.As<std::int64_t>(1), here.As<std::int64_t>(1)) << largest << axis;
      EXPECT_EQ(there.data[0], here.data[0]) << largest << axis;
    }
  }
}

// y = Relu(conv(x) A + b), whose steps are computed by cuDNN, cuBLAS and our own kernels; four equal values.
class CudaGraphs : public testing::Test {
 protected:
  static constexpr Duration kPatience = std::chrono::seconds(30);
  // Where a launch finds its inputs, outputs and weights.
  using Places = LaunchArguments;

  void SetUp() override {
    if (RealDriver()) GTEST_SKIP() << "only the fake driver tells what it did";
    Open(SmallOptions());
  }
  void TearDown() override {
    plan_ = nullptr;
    stream_ = nullptr;
    opened_.device = nullptr;
    EXPECT_EQ(GraphCounts().alive, 0u);
  }
  void Open(const CudaOptions& options) {
    plan_ = nullptr;
    stream_ = nullptr;
    opened_ = cuda::Open(options);
    ASSERT_NE(opened_.device, nullptr) << opened_.why;
    stream_ = opened_.device->MakeStream();
    ModelBuilder builder;
    builder.Step("Conv", {builder.Input("x", {1, 1, 2, 2}), builder.Floats({1, 1, 1, 1}, {2})}, "c");
    builder.Step("MatMul", {"c", builder.Floats({2, 2}, {1, 1, 1, 1})}, "m");
    builder.Step("Add", {"m", builder.Floats({1}, {-10})}, "s");
    builder.Step("Relu", {"s"}, "y");
    builder.Output("y", {1, 1, 2, 2});
    weights_ = builder.weights();
    auto plan =
        opened_.device->Prepare(builder.model(), weights_, builder.input_specs(), proto::PRECISION_FP32);
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = *plan;
    begun_ = GraphCounts();
  }
  Places Take() {
    const auto take = [this](Bytes size) { return *opened_.device->Allocate(size); };
    Places places;
    places.weights = take(plan_->weights_bytes());
    places.activations = take(plan_->activation_bytes());
    places.inputs = {take(plan_->input_bytes(0))};
    places.outputs = {take(plan_->output_bytes(0))};
    EXPECT_TRUE(stream_->CopyIn(places.weights, weights_, nullptr)->Wait(kPatience).ok());
    return places;
  }
  // Launches with four values `x`.
  void Launch(const Places& places, float x) {
    const std::vector<float> in(4, x);
    std::vector<float> out(4, -1);
    stream_->CopyIn(places.inputs[0], std::as_bytes(std::span(in)), nullptr);
    stream_->CopyIn(places.outputs[0], std::as_bytes(std::span(out)), nullptr);
    stream_->Launch(plan_, places, nullptr);
    const EventPtr last =
        stream_->CopyOut(std::as_writable_bytes(std::span(out)), places.outputs[0], nullptr);
    ASSERT_TRUE(last->Wait(kPatience).ok()) << last->status();
    EXPECT_THAT(out, testing::Each(std::max(0.0F, 4 * x - 10))) << x;
  }
  // The calls of the driver since the plan was made.
  [[nodiscard]] cuda::fake::FakeGraphCounts Counted() const {
    cuda::fake::FakeGraphCounts counts = GraphCounts();
    counts.captured -= begun_.captured;
    counts.nodes -= begun_.nodes;
    counts.instantiated -= begun_.instantiated;
    counts.updated -= begun_.updated;
    counts.launched -= begun_.launched;
    return counts;
  }

  CudaOpened opened_;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<DevicePlan> plan_;
  std::vector<std::byte> weights_;
  cuda::fake::FakeGraphCounts begun_;
};

TEST_F(CudaGraphs, WhatComesAgainIsReplayed) {
  const Places places = Take();
  Launch(places, 3);
  EXPECT_EQ(Counted().captured, 0u) << "a launch that came once may never come again";
  for (const float x : {4.0F, 1.0F, 5.0F}) Launch(places, x);
  EXPECT_EQ(Counted().captured, 1u);
  EXPECT_GE(Counted().nodes, 4u);
  EXPECT_EQ(Counted().instantiated, 1u);
  EXPECT_EQ(Counted().launched, 3u);
  EXPECT_EQ(Counted().updated, 0u);
}

TEST_F(CudaGraphs, OtherAddressesAreRecordedBesideAndThenInstead) {
  const std::vector<Places> places = {Take(), Take(), Take()};
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t at : {0, 1}) Launch(places[at], static_cast<float>(round + 1));
  }
  EXPECT_EQ(Counted().captured, 2u);
  EXPECT_EQ(Counted().instantiated, 2u);
  EXPECT_EQ(Counted().launched, 4u);
  for (int round = 0; round < 3; ++round) Launch(places[2], static_cast<float>(round + 2));
  EXPECT_EQ(Counted().captured, 3u);
  EXPECT_EQ(Counted().instantiated, 2u) << "there is room for two graphs";
  EXPECT_EQ(Counted().updated, 1u);
  Launch(places[1], 6);
  EXPECT_EQ(Counted().launched, 7u) << "the graph that was used last is still there";
  Launch(places[0], 7);
  EXPECT_EQ(Counted().launched, 7u) << "the other graph has gone";
  auto other = opened_.device->MakeStream();  // the workspaces of its libraries are others
  std::swap(stream_, other);
  Launch(places[1], 8);
  EXPECT_EQ(Counted().launched, 7u);
}

TEST_F(CudaGraphs, EachAddressCounts) {
  const Places usual = Take();
  const Places others = Take();
  std::vector<Places> changed(4, usual);
  changed[0].weights = others.weights;
  changed[1].activations = others.activations;
  changed[2].inputs = others.inputs;
  changed[3].outputs = others.outputs;
  for (std::size_t i = 0; i < changed.size(); ++i) {
    for (const float x : {3.0F, 4.0F, 5.0F}) Launch(usual, x);
    const auto before = Counted().launched;
    Launch(changed[i], static_cast<float>(i) + 6);
    EXPECT_EQ(Counted().launched, before) << i;
  }
}

TEST_F(CudaGraphs, MarksAreToldBetweenSegments) {
  Places places = Take();
  std::vector<std::size_t> reached;
  places.marks = {0, 1, 3};
  places.reached = [&](std::size_t step) { reached.push_back(step); };
  for (const float x : {2.0F, 3.0F, 4.0F}) {
    reached.clear();
    Launch(places, x);
    EXPECT_THAT(reached, ElementsAre(0, 1, 3));
  }
  EXPECT_EQ(Counted().captured, 3u);
  EXPECT_EQ(Counted().launched, 6u);
  EXPECT_EQ(stream_->launches().progress, 4 * plan_->step_count())
      << "each step when it has run, and those of the first launch when they were put on the stream, too";
}

TEST_F(CudaGraphs, WeightsThatAreOnTheirWayAreWaitedForStepByStep) {
  Places places = Take();
  std::size_t asked = 0;
  places.gate = [&](std::size_t) -> EventPtr {
    ++asked;
    return nullptr;
  };
  for (const float x : {2.0F, 3.0F, 4.0F}) Launch(places, x);
  EXPECT_EQ(asked, 3 * plan_->step_count());
  EXPECT_EQ(Counted().captured, 0u);
  places.gate = nullptr;
  for (const float x : {2.0F, 3.0F}) Launch(places, x);
  EXPECT_EQ(Counted().launched, 1u) << "launches with a gate do not count as earlier ones of the same kind";
}

TEST_F(CudaGraphs, OffIsStepByStep) {
  CudaOptions options = SmallOptions();
  options.repeated = RepeatedLaunch::kStepByStep;
  Open(options);
  const Places places = Take();
  for (const float x : {2.0F, 3.0F, 4.0F}) Launch(places, x);
  EXPECT_EQ(Counted().captured, 0u);
}

TEST_F(CudaGraphs, WhatCannotBeRecordedIsLaunchedPlainly) {
  const Places places = Take();
  const FakeMachine machine("no_capture=1");
  for (const float x : {2.0F, 3.0F, 4.0F}) Launch(places, x);
  EXPECT_EQ(Counted().captured, 0u);
  EXPECT_TRUE(opened_.device->Health().ok());
}

}  // namespace
}  // namespace troupe::gpu::test

// Shares of a GPU's SMs: green contexts, and which launches run in them.
#include <dlfcn.h>

#include <cstring>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/gpu_cuda/fake_cuda.hpp"
#include "tests/unit/gpu_engine/model_builder.hpp"

namespace troupe::gpu::test {
namespace {

using testing::HasSubstr;

constexpr Duration kSharesPatience = std::chrono::seconds(30);

template <class... Arguments>
std::uint64_t AskFake(const char* name, Arguments... arguments) {
  void* const library = dlopen(DriverLibrary().c_str(), RTLD_NOW);
  TROUPE_CHECK(library != nullptr, "the fake driver is not built");
  return reinterpret_cast<std::uint64_t (*)(Arguments...)>(dlsym(library, name))(arguments...);
}

// y = (x + 1) * 3 + 1: a product of cuBLAS between two kernels of our own.
struct Rig {
  // `fused`: the product adds the last 1 itself.
  explicit Rig(Device& device, bool fused = false) : device(device), stream(device.MakeStream()) {
    ModelBuilder builder;
    const std::string x = builder.Input("x", {1, 1});
    builder.Step("Add", {x, builder.Floats({1}, {1})}, "a");
    proto::Step& product = builder.Step("MatMul", {"a", builder.Floats({1, 1}, {3})}, fused ? "y" : "b");
    const std::string one = builder.Floats({1}, {1});
    if (fused) {
      product.add_inputs(one);
    } else {
      builder.Step("Add", {"b", one}, "y");
    }
    builder.Output("y", {1, 1});
    auto prepared =
        device.Prepare(builder.model(), builder.weights(), builder.input_specs(), proto::PRECISION_FP32);
    TROUPE_CHECK(prepared.ok(), std::string(prepared.status().message()).c_str());
    plan = *prepared;
    arguments.weights = *device.Allocate(plan->weights_bytes());
    arguments.activations = *device.Allocate(plan->activation_bytes());
    arguments.inputs = {*device.Allocate(plan->input_bytes(0))};
    arguments.outputs = {*device.Allocate(plan->output_bytes(0))};
    const std::vector<std::byte> weights = builder.weights();
    EXPECT_TRUE(stream->CopyIn(arguments.weights, weights, nullptr)->Wait(kSharesPatience).ok());
  }
  // Copies and launch follow the order of one stream, in whichever context the launch runs.
  float Run(float x, const SmShare& share) {
    arguments.share = share;
    float y = 0;
    stream->CopyIn(arguments.inputs[0], std::as_bytes(std::span(&x, 1)), nullptr);
    stream->Launch(plan, arguments, nullptr);
    const auto out = stream->CopyOut(std::as_writable_bytes(std::span(&y, 1)), arguments.outputs[0], nullptr);
    EXPECT_TRUE(out->Wait(kSharesPatience).ok()) << out->status();
    return y;
  }
  Device& device;
  std::unique_ptr<Stream> stream;
  std::shared_ptr<DevicePlan> plan;
  LaunchArguments arguments;
};

TEST(CudaShares, AnyShareOfTheGpuComputesTheSame) {
  const CudaOpened opened = cuda::Open(SmallOptions());
  ASSERT_NE(opened.device, nullptr) << opened.why;
  Rig rig(*opened.device);
  ShareGate gate(opened.device->info().shares, 64);
  float x = 0;
  for (int round = 0; round < 20; ++round) {  // from share to share, with nothing in between
    for (const std::uint32_t percent : {0, 6, 50, 12, 100, 24}) {
      const auto share = gate.Take(percent);
      ASSERT_TRUE(share);
      x += 1;
      ASSERT_EQ(rig.Run(x, *share), (x + 1) * 3 + 1) << percent;
      gate.Give(*share);
    }
  }
}

// The algorithm that cuBLASLt chose is for the whole GPU, and the fake one refuses it on a part.
TEST(CudaShares, OnAShareAProductAndItsBiasAreTwo) {
  const CudaOpened opened = cuda::Open(SmallOptions());
  ASSERT_NE(opened.device, nullptr) << opened.why;
  Rig rig(*opened.device, true);
  ShareGate gate(opened.device->info().shares, 64);
  for (const std::uint32_t percent : {0, 12, 0}) {
    const auto share = gate.Take(percent);
    ASSERT_TRUE(share);
    EXPECT_EQ(rig.Run(2, *share), 10);
    gate.Give(*share);
  }
}

class FakeCudaShares : public testing::Test {
 protected:
  void SetUp() override {
    if (RealDriver()) GTEST_SKIP() << "only the fake driver tells where a kernel runs";
  }
  static std::uint64_t Launches(std::uint32_t first, std::uint32_t sms) {
    return AskFake("FakeCudaLaunches", first, sms);
  }
};

TEST_F(FakeCudaShares, ALaunchIsOnTheSmsOfItsShareAndOnNoOthers) {
  const FakeMachine machine("sms=132");
  const CudaOpened opened = cuda::Open(SmallOptions());
  ASSERT_NE(opened.device, nullptr) << opened.why;
  EXPECT_EQ(opened.device->info().remark, "");
  EXPECT_EQ(opened.device->info().shares.sms(), 132u);
  EXPECT_EQ(opened.device->info().shares.shares().size(), 17u);
  Rig rig(*opened.device);
  Rig other(*opened.device);
  ShareGate gate(opened.device->info().shares, 64);
  const auto quarter = gate.Take(24);
  const auto half = gate.Take(50);
  ASSERT_TRUE(quarter && half);
  EXPECT_EQ(rig.Run(1, *quarter), 7);
  EXPECT_EQ(Launches(quarter->begin * 8, 32), 2u);
  EXPECT_EQ(other.Run(2, *half), 10);
  EXPECT_EQ(Launches(half->begin * 8, 64), 2u);
  EXPECT_EQ(Launches(0, 132), 0u);
  EXPECT_EQ(rig.Run(3, SmShare()), 13);
  EXPECT_EQ(Launches(0, 132), 2u);
  gate.Give(*quarter);
  gate.Give(*half);
  EXPECT_EQ(rig.Run(4, *gate.Take(100)), 16);
  EXPECT_EQ(Launches(0, 132), 4u) << "the whole needs no context of its own";
}

// Each run computes with the share that it has.
TEST_F(FakeCudaShares, PersistentKernelsHaveAsManyBlocksAsTheirSmsRun) {
  constexpr std::int64_t kMany = 1 << 18;
  const FakeMachine machine("sms=132");
  for (const KernelForm form : {KernelForm::kPersistent, KernelForm::kWhole}) {
    CudaOptions options = SmallOptions();
    options.kernels = form;
    const CudaOpened opened = cuda::Open(options);
    ASSERT_NE(opened.device, nullptr) << opened.why;
    ModelBuilder builder;
    builder.Step("Softmax", {builder.Input("x", {kMany / 4, 4})}, "s");
    builder.Step("Relu", {"s"}, "y");
    builder.Output("y", {kMany / 4, 4});
    const auto plan = opened.device->Prepare(builder.model(), builder.weights(), builder.input_specs(),
                                             proto::PRECISION_FP32);
    ASSERT_TRUE(plan.ok()) << plan.status();
    LaunchArguments arguments;
    arguments.weights = *opened.device->Allocate((*plan)->weights_bytes());
    arguments.activations = *opened.device->Allocate((*plan)->activation_bytes());
    arguments.inputs = {*opened.device->Allocate((*plan)->input_bytes(0))};
    arguments.outputs = {*opened.device->Allocate((*plan)->output_bytes(0))};
    const auto stream = opened.device->MakeStream();
    const std::vector<float> in(kMany, 2);
    stream->CopyIn(arguments.inputs[0], std::as_bytes(std::span(in)), nullptr);
    ShareGate gate(opened.device->info().shares, 64);
    std::size_t grids = 0;
    for (const std::uint32_t percent : {6, 50, 0, 12, 6, 6}) {
      const auto share = gate.Take(percent);
      ASSERT_TRUE(share);
      arguments.share = *share;
      std::vector<float> out(kMany, 0);
      (void)AskFake("FakeCudaLargestGrid");
      stream->CopyIn(arguments.outputs[0], std::as_bytes(std::span(out)), nullptr);
      stream->Launch(*plan, arguments, nullptr);
      const auto last =
          stream->CopyOut(std::as_writable_bytes(std::span(out)), arguments.outputs[0], nullptr);
      ASSERT_TRUE(last->Wait(kSharesPatience).ok()) << last->status();
      EXPECT_THAT(out, testing::Each(0.25F)) << percent;
      const std::uint64_t grid = AskFake("FakeCudaLargestGrid");
      const std::uint64_t sms = share->sms == 0 ? 132 : share->sms;
      const std::uint64_t expected = form == KernelForm::kPersistent ? sms * 8 : kMany / 4 / 8;
      EXPECT_THAT(grid, testing::AnyOf(expected, 0u)) << percent;  // 0: the launch was replayed
      grids += grid > 0 ? 1 : 0;
      gate.Give(*share);
    }
    EXPECT_EQ(grids, 5u);
  }
}

// A place of a share costs memory and time, and most are never used.
TEST_F(FakeCudaShares, EachIsMadeWhenItIsUsedFirstAndAllAreGivenBack) {
  const FakeMachine machine("");
  {
    const CudaOpened opened = cuda::Open(SmallOptions());
    ASSERT_NE(opened.device, nullptr) << opened.why;
    EXPECT_EQ(AskFake("FakeCudaGreenContexts"), 2u) << "those that show that the GPU has them";
    Rig rig(*opened.device);
    for (int round = 0; round < 3; ++round) {
      ShareGate gate(opened.device->info().shares, 64);
      EXPECT_EQ(rig.Run(1, *gate.Take(50)), 7);
      EXPECT_EQ(AskFake("FakeCudaGreenContexts"), 3u);
    }
  }
  EXPECT_EQ(AskFake("FakeCudaGreenContexts"), 0u);
}

TEST_F(FakeCudaShares, WithoutThemThereIsTheWholeGpuAndALineThatSaysSo) {
  struct Case {
    const char* machine;
    const char* why;
  };
  for (const Case& c : {Case{"green=0", "asking for the GPU's SMs: CUDA_ERROR_NOT_SUPPORTED"},
                        Case{"green=1", "making a green context of"}, Case{"sms=12", "they make 1 parts"}}) {
    const FakeMachine machine(c.machine);
    const CudaOpened opened = cuda::Open(SmallOptions());
    ASSERT_NE(opened.device, nullptr) << opened.why;
    EXPECT_THAT(opened.device->info().remark, HasSubstr(c.why));
    EXPECT_EQ(opened.device->info().remark.find('\n'), std::string::npos);
    EXPECT_EQ(opened.device->info().shares.shares().size(), 1u);
    EXPECT_EQ(AskFake("FakeCudaGreenContexts"), 0u) << "every context was given back";
    Rig rig(*opened.device);
    ShareGate gate(opened.device->info().shares, 64);
    const auto share = gate.Take(12);
    ASSERT_TRUE(share);
    EXPECT_EQ(rig.Run(1, *share), 7);
    EXPECT_FALSE(gate.Take(12)) << "only one at a time has that share";
  }
}

// Later than at the start the runs of that share fail, and the GPU serves all others.
TEST_F(FakeCudaShares, AShareThatCannotBeMadeFailsItsRunsAlone) {
  const FakeMachine machine("green=2");
  const CudaOpened opened = cuda::Open(SmallOptions());
  ASSERT_NE(opened.device, nullptr) << opened.why;
  Rig rig(*opened.device);
  LaunchArguments arguments = rig.arguments;
  ShareGate gate(opened.device->info().shares, 64);
  arguments.share = *gate.Take(50);
  const auto failed = rig.stream->Launch(rig.plan, arguments, nullptr);
  EXPECT_EQ(failed->Wait(kSharesPatience).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(failed->status().message()), HasSubstr("making a green context of 8 parts"));
  EXPECT_EQ(rig.Run(1, SmShare()), 7);
  EXPECT_TRUE(opened.device->Health().ok());
}

// A library refuses a stream of another context than that in which its handle was made.
TEST_F(FakeCudaShares, ConvolutionsRunOnAnyShare) {
  const CudaOpened opened = cuda::Open(SmallOptions());
  ASSERT_NE(opened.device, nullptr) << opened.why;
  ModelBuilder builder;
  builder.Step("Conv", {builder.Input("x", {1, 1, 1, 3}), builder.Floats({1, 1, 1, 1}, {2})}, "y");
  builder.Output("y", {1, 1, 1, 3});
  const auto plan = opened.device->Prepare(builder.model(), builder.weights(), builder.input_specs(),
                                           proto::PRECISION_FP32);
  ASSERT_TRUE(plan.ok()) << plan.status();
  LaunchArguments arguments;
  arguments.weights = *opened.device->Allocate((*plan)->weights_bytes());
  arguments.activations = *opened.device->Allocate((*plan)->activation_bytes());
  arguments.inputs = {*opened.device->Allocate((*plan)->input_bytes(0))};
  arguments.outputs = {*opened.device->Allocate((*plan)->output_bytes(0))};
  const auto stream = opened.device->MakeStream();
  const std::vector<std::byte> weights = builder.weights();
  stream->CopyIn(arguments.weights, weights, nullptr);
  const std::vector<float> in = {1, 2, 3};
  stream->CopyIn(arguments.inputs[0], std::as_bytes(std::span(in)), nullptr);
  ShareGate gate(opened.device->info().shares, 64);
  for (const std::uint32_t percent : {0, 12, 50, 0, 12, 50, 12}) {
    const auto share = gate.Take(percent);
    ASSERT_TRUE(share);
    arguments.share = *share;
    const auto launched = stream->Launch(*plan, arguments, nullptr);
    ASSERT_TRUE(launched->Wait(kSharesPatience).ok()) << percent << ": " << launched->status();
    std::vector<float> out(3);
    const auto last = stream->CopyOut(std::as_writable_bytes(std::span(out)), arguments.outputs[0], nullptr);
    ASSERT_TRUE(last->Wait(kSharesPatience).ok()) << last->status();
    EXPECT_THAT(out, testing::ElementsAre(2, 4, 6)) << percent;
    gate.Give(*share);
  }
}

TEST_F(FakeCudaShares, SmallPartsAreJoined) {
  const FakeMachine machine("sms=320");
  const CudaOpened opened = cuda::Open(SmallOptions());
  ASSERT_NE(opened.device, nullptr) << opened.why;
  EXPECT_EQ(opened.device->info().shares.unit(), 16u);
  EXPECT_EQ(opened.device->info().shares.shares().size(), 20u);
}

}  // namespace
}  // namespace troupe::gpu::test

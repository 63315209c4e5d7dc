// What a GPU does beyond the contract of devices: errors at its start, and how it is lost.
#include <future>

#include "gmock/gmock.h"
#include "gpu/cuda/memory.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_cuda/fake_cuda.hpp"
#include "tests/unit/gpu_device/small_model.hpp"
#include "tests/unit/gpu_engine/model_builder.hpp"

namespace troupe::gpu::test {
namespace {

using testing::HasSubstr;

constexpr Duration kCudaPatience = std::chrono::seconds(30);

class CudaStart : public testing::Test {
 protected:
  void SetUp() override {
    if (RealDriver()) GTEST_SKIP() << "only the fake driver's machine can be changed";
  }
};

TEST_F(CudaStart, EachTroubleHasItsLine) {
  struct Case {
    const char* machine;
    CudaTrouble trouble;
    const char* line;
    std::uint64_t memory = MiB(16).count();
  };
  for (const Case& c : {
           Case{"version=12090", CudaTrouble::kDriverTooOld,
                "needs a driver for CUDA 13.0, found one for 12.9"},
           Case{"init=803", CudaTrouble::kDriverTooOld, "803"},
           Case{"init=999", CudaTrouble::kNoDriver, "does not start"},
           Case{"devices=0", CudaTrouble::kNoDevice, "the driver sees no GPU"},
           Case{"major=7", CudaTrouble::kWrongArchitecture, "is of sm_70, there is code for sm_80 and later"},
           Case{"refuse=3", CudaTrouble::kOutOfMemory,
                "taking 16 MiB of device memory (4 MiB were to be had)"},
           Case{"held=260000000", CudaTrouble::kBusy, "free of 256 MiB, 16 MiB is needed; end that process"},
           Case{"held=140000000", CudaTrouble::kBusy, "half is needed", 0},
           Case{"init=100", CudaTrouble::kNoDevice, "cut into instances (MIG)"},
           Case{"init=807", CudaTrouble::kTaken, "the MPS server between this process and the GPU refuses"},
           Case{"compute_mode=2", CudaTrouble::kTaken, "cuda:0 lets no process compute"},
           Case{"mps=1", CudaTrouble::kTaken, "an MPS server stands between this process and cuda:0"},
           Case{"mig=1", CudaTrouble::kTaken, "cuda:0 is an instance of a GPU (fake MIG 1g.10gb)"},
           Case{"no_mapping=1", CudaTrouble::kWrongArchitecture, "virtual memory management"},
           Case{"no_context=46", CudaTrouble::kBusy, "is another process's alone (compute mode exclusive)"},
           Case{"no_context=809", CudaTrouble::kTaken,
                "the MPS server between this process and cuda:0 refuses"},
           Case{"no_context=2", CudaTrouble::kBusy, "no memory left for a context"},
           Case{"no_context=999", CudaTrouble::kLost, "making a context on cuda:0: "},
           Case{"", CudaTrouble::kUsage, "were asked for, which has 256 MiB", GiB(1).count()},
           Case{"", CudaTrouble::kUsage, "less than a unit", 1000},
       }) {
    const FakeMachine machine(c.machine);
    CudaOptions options = SmallOptions();
    options.memory = Bytes(c.memory);
    const CudaOpened opened = cuda::Open(options);
    EXPECT_EQ(opened.trouble, c.trouble) << c.machine << ": " << Name(opened.trouble);
    EXPECT_THAT(opened.why, HasSubstr(c.line)) << c.machine;
    EXPECT_EQ(opened.why.find('\n'), std::string::npos);
    EXPECT_EQ(opened.device, nullptr);
  }
  CudaOptions options = SmallOptions();
  options.ordinal = 2;
  EXPECT_EQ(cuda::Open(options).trouble, CudaTrouble::kNoDevice);
  options.driver = "libno_such_driver.so";
  EXPECT_EQ(cuda::Open(options).trouble, CudaTrouble::kNoDriver);
  options.driver = "libc.so.6";  // a library that knows nothing of CUDA
  EXPECT_EQ(cuda::Open(options).trouble, CudaTrouble::kDriverTooOld);
}

// Each is made and mapped with a call of its own, and a model that is mapped takes whole ones.
TEST(CudaUnits, AreAsSmallAsTheGpuHasThemUntilTheyWouldBeTooMany) {
  EXPECT_EQ(cuda::UnitFor(MiB(2), MiB(64), false), MiB(2));
  EXPECT_EQ(cuda::UnitFor(MiB(2), GiB(16), false), MiB(2));
  EXPECT_EQ(cuda::UnitFor(MiB(2), GiB(80), false), MiB(16));
  EXPECT_EQ(cuda::UnitFor(MiB(2), GiB(141), false), MiB(32));
  EXPECT_EQ(cuda::UnitFor(MiB(2), GiB(80), true), MiB(2));
  EXPECT_EQ(cuda::UnitFor(MiB(2), GiB(141), true), MiB(2));
  EXPECT_EQ(cuda::UnitFor(MiB(2), GiB(288), true), MiB(4));
  EXPECT_EQ(cuda::UnitFor(MiB(32), MiB(64), true), MiB(32));
}

TEST_F(CudaStart, ALaterDriverIsTaken) {
  const FakeMachine machine("version=14000");
  const CudaOpened opened = cuda::Open(SmallOptions());
  EXPECT_EQ(opened.trouble, CudaTrouble::kNone) << opened.why;
  EXPECT_THAT(opened.summary, HasSubstr("its driver is for CUDA 14.0"));
}

// Its name promises a version, and links may lead elsewhere.
TEST_F(CudaStart, ALibraryOfAnotherMajorVersionIsRefusedByName) {
  struct Case {
    const char* machine;
    const char* op;
    const char* line;
  };
  for (const Case& c :
       {Case{"cublas=12", "MatMul", "libcublas.so.13 is of cuBLAS 12, and cuBLAS 13 is needed"},
        Case{"cudnn=8", "Conv", "libcudnn.so.9 is of cuDNN 8, and cuDNN 9 is needed"},
        Case{"cudnn=10", "Conv", "libcudnn.so.9 is of cuDNN 10, and cuDNN 9 is needed"}}) {
    const FakeMachine machine(c.machine);
    const CudaOpened opened = cuda::Open(SmallOptions());
    ASSERT_NE(opened.device, nullptr) << opened.why;
    ModelBuilder builder;
    const bool product = std::string(c.op) == "MatMul";
    const Shape shape = product ? Shape{1, 1} : Shape{1, 1, 1, 1};
    builder.Step(c.op, {builder.Input("x", shape), builder.Floats(shape, {2})}, "y");
    builder.Output("y", shape);
    const auto plan = opened.device->Prepare(builder.model(), builder.weights(), builder.input_specs(),
                                             proto::PRECISION_FP32);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition) << plan.status();
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr(c.line));
  }
}

TEST_F(CudaStart, ThePlugInIsOfTheSameBuild) {
  const CudaOpened none = OpenCuda("/nonexistent/plugin.so", SmallOptions());
  EXPECT_EQ(none.trouble, CudaTrouble::kNoPlugin);
  EXPECT_THAT(none.why, HasSubstr("build with a CUDA toolkit"));
  const CudaOpened other = OpenCuda(FakeLibrary("libcublas.so.13"), SmallOptions());
  EXPECT_EQ(other.trouble, CudaTrouble::kNoPlugin);
  EXPECT_THAT(other.why, HasSubstr("is of another build (no version"));
  // It ends the process when it is asked for a device.
  const CudaOpened older = OpenCuda(FakeLibrary("libtroupe_other_plugin.so"), SmallOptions());
  EXPECT_EQ(older.trouble, CudaTrouble::kNoPlugin);
  EXPECT_THAT(older.why,
              HasSubstr("is of another build (troupe-cuda of another build, this is troupe-cuda "));
  CudaOptions options = SmallOptions();
  options.driver = "libno_such_driver.so";
  EXPECT_EQ(OpenCuda("/nonexistent/plugin.so", options).trouble, CudaTrouble::kNoDriver);
}

TEST_F(CudaStart, AWholeGpuLeavesSomeToLibraries) {
  const FakeMachine machine("memory=67108864");
  CudaOptions options = SmallOptions();
  options.memory = Bytes(0);
  const CudaOpened opened = cuda::Open(options);
  ASSERT_NE(opened.device, nullptr) << opened.why;
  EXPECT_EQ(opened.device->info().memory, MiB(62));
  EXPECT_GT(opened.device->info().link.value, 0);
}

TEST_F(CudaStart, WhatFailedLeavesNothingTaken) {
  for (int round = 0; round < 3; ++round) {
    {
      const FakeMachine machine("refuse=30");
      EXPECT_EQ(cuda::Open(SmallOptions()).trouble, CudaTrouble::kOutOfMemory);
    }
    const FakeMachine machine("memory=68157440");  // 65 MiB
    const CudaOpened opened = cuda::Open(SmallOptions());
    EXPECT_EQ(opened.trouble, CudaTrouble::kNone) << opened.why;
  }
}

TEST_F(CudaStart, AnAddressThatTheDriverDoesNotGiveIsRefused) {
  const FakeMachine machine("moves_addresses=1");
  const CudaOpened opened = cuda::Open(SmallOptions());
  ASSERT_NE(opened.device, nullptr) << opened.why;
  Device& device = *opened.device;
  const auto range = device.Allocate(device.MappingUnit() * 2);
  ASSERT_TRUE(range.ok());
  const std::vector<DeviceRange> pieces = {*range};
  EXPECT_EQ(device.Map(std::uint64_t{33} << 40, pieces).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(device.Map(0, pieces).ok());
}

TEST_F(CudaStart, ALostGpuFailsWhatIsUnderWayAndAllThatComes) {
  const FakeMachine machine("lost_after=40");  // at most 24 are the measured link's
  const CudaOpened opened = cuda::Open(SmallOptions());
  ASSERT_NE(opened.device, nullptr) << opened.why;
  Device& device = *opened.device;
  const DeviceRange range = *device.Allocate(MiB(1));
  const std::vector<std::byte> bytes(1 << 20);
  auto stream = device.MakeStream();
  auto other = device.MakeStream();
  EventPtr last;
  for (int i = 0; i < 48; ++i) last = stream->CopyIn(range, bytes, nullptr);
  EXPECT_EQ(last->Wait(kCudaPatience).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(device.Health().message()), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  other->Wait(last);
  std::promise<Completion> done;
  const EventPtr behind = other->CopyWithin(range, range.Part(Bytes(0), Bytes(0)),
                                            [&](const Completion& c) { done.set_value(c); });
  EXPECT_EQ(behind->Wait(kCudaPatience).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(done.get_future().get().status.code(), absl::StatusCode::kUnavailable);
}

// Every call of the driver fails then, and none of them ends the process: the worker's own end says why.
TEST_F(CudaStart, WhatIsAskedOfALostGpuFailsAndNothingAborts) {
  const FakeMachine machine("lost_after=40");
  const CudaOpened opened = cuda::Open(SmallOptions());
  ASSERT_NE(opened.device, nullptr) << opened.why;
  Device& device = *opened.device;
  const DeviceRange range = *device.Allocate(device.MappingUnit());
  std::vector<std::byte> bytes(1 << 20);
  const auto stream = device.MakeStream();
  ModelBuilder builder;
  builder.Step("Relu", {builder.Input("x", {4})}, "y");
  builder.Output("y", {4});
  const auto plan =
      device.Prepare(builder.model(), builder.weights(), builder.input_specs(), proto::PRECISION_FP32);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EventPtr last;
  for (int i = 0; i < 48; ++i) last = stream->CopyIn(range, bytes, nullptr);
  ASSERT_EQ(last->Wait(kCudaPatience).code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(device.RegisterHost(bytes).ok());
  EXPECT_FALSE(device.Map(0, std::vector<DeviceRange>{range}).ok());
  EXPECT_FALSE(
      device.Prepare(builder.model(), builder.weights(), builder.input_specs(), proto::PRECISION_FP32).ok());
  const auto late = device.MakeStream();
  late->Wait(last);
  int told = 0;
  const auto tell = [&told](const Completion& completion) {
    ++told;
    EXPECT_EQ(completion.status.code(), absl::StatusCode::kUnavailable);
  };
  for (const EventPtr& event :
       {late->CopyIn(range, bytes, tell), late->CopyOut(bytes, range, tell),
        late->CopyWithin(range, range, tell),
        late->Launch(*plan, LaunchArguments(), [&](const Completion&completion, auto) { tell(completion); })})
    EXPECT_EQ(event->Wait(kCudaPatience).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(told, 4);
}

TEST_F(CudaStart, AFillerThatTheRunComputesIsRefusedByName) {
  const CudaOpened opened = cuda::Open(SmallOptions());
  ASSERT_NE(opened.device, nullptr) << opened.why;
  proto::Model model;
  model.set_format_version(1);
  model.set_opset(13);
  *model.add_inputs() = Spec("x", {4});
  *model.add_inputs() = Spec("filler", {});
  *model.add_outputs() = Spec("y", {6});
  auto* const pad = model.add_steps();
  pad->set_op("Pad");
  pad->set_name("p");
  for (const char* const name : {"x", "pads", "filler"}) pad->add_inputs(name);
  pad->add_outputs("y");
  auto* const pads = model.add_weights();
  pads->set_name("pads");
  pads->set_type(proto::INT64);
  pads->add_shape(2);
  pads->set_length(16);
  model.set_weights_bytes(64);
  std::vector<std::byte> weights(64);
  weights[0] = weights[8] = std::byte{1};
  const std::vector<proto::TensorSpec> inputs = {Spec("x", {4}), Spec("filler", {})};
  const auto plan = opened.device->Prepare(model, weights, inputs, proto::PRECISION_FP32);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kUnimplemented) << plan.status();
  EXPECT_THAT(std::string(plan.status().message()),
              HasSubstr("Pad 'p': no kernel of the GPU covers a filler"));
}

TEST_F(CudaStart, RegisteredMemoryIsCopiedBesideItsCaller) {
  const CudaOpened opened = cuda::Open(SmallOptions());
  ASSERT_NE(opened.device, nullptr) << opened.why;
  Device& device = *opened.device;
  std::vector<std::byte> host(1 << 20, std::byte{7});
  ASSERT_TRUE(device.RegisterHost(host).ok());
  ASSERT_TRUE(device.RegisterHost(host).ok());  // a second session registers the region, too
  device.UnregisterHost(host);
  const DeviceRange range = *device.Allocate(MiB(1));
  std::vector<std::byte> back(1 << 20);
  {
    auto stream = device.MakeStream();
    stream->CopyIn(range, host, nullptr);
    EXPECT_TRUE(stream->CopyOut(back, range, nullptr)->Wait(kCudaPatience).ok());
  }
  EXPECT_EQ(back, host);
  {
    auto stream = device.MakeStream();  // the copy goes back into registered memory
    std::fill(host.begin(), host.end(), std::byte{0});
    EXPECT_TRUE(stream->CopyOut(host, range, nullptr)->Wait(kCudaPatience).ok());
  }
  EXPECT_EQ(back, host);
  device.UnregisterHost(host);
  ASSERT_TRUE(device.RegisterHost(host).ok());  // the registration was gone
  device.UnregisterHost(host);
}

}  // namespace
}  // namespace troupe::gpu::test

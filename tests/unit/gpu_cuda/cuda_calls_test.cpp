// What a worker asks of the driver, in counts on the fake one: calls for a launch, waits of the host, calls that wait
// for all that the GPU has to do, memory that is taken beside the models'.
#include <dlfcn.h>

#include <future>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gpu/cuda/fake/fake_driver.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_cuda/fake_cuda.hpp"
#include "tests/unit/gpu_cuda/held_gpu.hpp"
#include "tests/unit/gpu_engine/model_builder.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::test {
namespace {

constexpr Duration kCallsPatience = std::chrono::minutes(1);

cuda::fake::FakeCallCounts CallCounts() {
  void* const library = dlopen(DriverLibrary().c_str(), RTLD_NOW);
  cuda::fake::FakeCallCounts counts;
  reinterpret_cast<void (*)(cuda::fake::FakeCallCounts*)>(dlsym(library, "FakeCudaCallCounts"))(&counts);
  return counts;
}
cuda::fake::FakeGraphCounts RecordingCounts() {
  cuda::fake::FakeGraphCounts counts;
  reinterpret_cast<void (*)(cuda::fake::FakeGraphCounts*)>(
      dlsym(dlopen(DriverLibrary().c_str(), RTLD_NOW), "FakeCudaGraphCounts"))(&counts);
  return counts;
}
std::uint64_t AskDriver(const char* name) {
  return reinterpret_cast<std::uint64_t (*)()>(dlsym(dlopen(DriverLibrary().c_str(), RTLD_NOW), name))();
}

// A chain of products and additions, in so many steps.
class CudaCalls : public testing::Test {
 protected:
  void SetUp() override {
    if (RealDriver()) GTEST_SKIP() << "only the fake driver counts its calls";
    Open("");
  }
  void Open(const char* machine) {
    opened_ = CudaOpened();
    machine_.emplace(machine);
    opened_ = cuda::Open(SmallOptions());
    ASSERT_NE(opened_.device, nullptr) << opened_.why;
  }
  struct Lane {
    std::unique_ptr<Stream> stream;
    LaunchArguments arguments;
  };
  std::shared_ptr<DevicePlan> Plan(int steps) {
    ModelBuilder builder;
    std::string before = builder.Input("x", {1, 4});
    for (int step = 1; step <= steps; ++step) {
      const std::string after = step == steps ? "y" : "t" + std::to_string(step);
      if (step % 2 == 0) {
        builder.Step("MatMul", {before, builder.Floats({4, 4}, std::vector<float>(16, 1))}, after);
      } else {
        builder.Step("Add", {before, builder.Floats({1}, {1})}, after);
      }
      before = after;
    }
    builder.Output("y", {1, 4});
    return Made(builder);
  }
  std::shared_ptr<DevicePlan> Made(ModelBuilder& builder) {
    return *opened_.device->Prepare(builder.model(), builder.weights(), builder.input_specs(),
                                    proto::PRECISION_FP32);
  }
  // Of one step of a library: a product by cuBLAS, one with its bias by cuBLASLt, a convolution by cuDNN.
  std::shared_ptr<DevicePlan> LibraryPlan(const std::string& op) {
    ModelBuilder builder;
    if (op == "Conv") {
      builder.Step(op, {builder.Input("x", {1, 1, 1, 4}), builder.Floats({1, 1, 1, 1}, {2})}, "y");
      builder.Output("y", {1, 1, 1, 4});
    } else {
      const std::string x = builder.Input("x", {1, 4});
      const std::string w = builder.Floats({4, 4}, std::vector<float>(16, 1));
      if (op == "Gemm") {
        builder.Step(op, {x, w, builder.Floats({4}, {1, 2, 3, 4})}, "y");
      } else {
        builder.Step(op, {x, w}, "y");
      }
      builder.Output("y", {1, 4});
    }
    return Made(builder);
  }
  Lane LaneFor(const DevicePlan& plan) {
    Lane lane;
    lane.stream = opened_.device->MakeStream();
    lane.arguments.weights = *opened_.device->Allocate(plan.weights_bytes());
    lane.arguments.activations = *opened_.device->Allocate(plan.activation_bytes());
    lane.arguments.inputs = {*opened_.device->Allocate(plan.input_bytes(0))};
    lane.arguments.outputs = {*opened_.device->Allocate(plan.output_bytes(0))};
    return lane;
  }
  static void Run(Lane& lane, const std::shared_ptr<DevicePlan>& plan) {
    const EventPtr done = lane.stream->Launch(plan, lane.arguments, nullptr);
    ASSERT_TRUE(done->Wait(kCallsPatience).ok()) << done->status();
  }
  std::optional<FakeMachine> machine_;
  CudaOpened opened_;
  std::vector<std::unique_ptr<Stream>> held_;  // end before the device
};

// Also with a limit, which the plan is known to take little of, as nearly all runs of a node have one. On a share it
// goes over to the share's stream, and back.
TEST_F(CudaCalls, ARunThatIsResidentAndRecordedTakesFiveCallsAndOneWait) {
  const auto plan = Plan(20);
  ShareGate gate(opened_.device->info().shares, 64);
  const auto share = gate.Take(50);
  ASSERT_TRUE(share);
  struct Case {
    Duration limit;
    SmShare share;
    std::uint64_t most;
  };
  for (const Case& c : {Case{Duration(0), SmShare(), 5}, Case{std::chrono::hours(1), SmShare(), 5},
                        Case{Duration(0), *share, 8}, Case{std::chrono::hours(1), *share, 8}}) {
    Lane lane = LaneFor(*plan);
    lane.arguments.limit = c.limit;
    lane.arguments.share = c.share;
    for (int round = 0; round < 5; ++round) Run(lane, plan);
    const auto before = CallCounts();
    constexpr std::uint64_t kRuns = 10;
    for (std::uint64_t round = 0; round < kRuns; ++round) Run(lane, plan);
    const auto after = CallCounts();
    EXPECT_LE(after.calls - before.calls, c.most * kRuns)
        << c.share.sms << " SMs, " << FormatDuration(c.limit);
    EXPECT_EQ(after.waits - before.waits, kRuns) << c.share.sms << " SMs, " << FormatDuration(c.limit);
    held_.push_back(std::move(lane.stream));
  }
}

// The first launches of two lanes included: what their libraries need was made with the plan, or when the other lane
// took it. With a limit, as a node's runs have it, too.
TEST_F(CudaCalls, NoCallOnThePathOfLaunchesWaitsForAllThatTheGpuDoes) {
  const std::vector<std::shared_ptr<DevicePlan>> plans = {Plan(20), LibraryPlan("Gemm"), LibraryPlan("Conv")};
  const auto before = CallCounts();
  for (int lanes = 0; lanes < 2; ++lanes) {
    Lane lane = LaneFor(*plans[0]);
    for (const auto& plan : plans) {
      lane.arguments = LaneFor(*plan).arguments;
      for (const Duration limit : {Duration(0), Duration(std::chrono::hours(1))}) {
        lane.arguments.limit = limit;
        for (int round = 0; round < 4; ++round) Run(lane, plan);
      }
    }
    EXPECT_EQ(CallCounts().synchronising_launches, before.synchronising_launches) << "lane " << lanes;
    held_.push_back(std::move(lane.stream));  // so that the next lane is another one
  }
}

// A library takes its context from where its handle is made, and which places a GPU will need is not known before.
TEST_F(CudaCalls, APlaceOfAShareMakesItsHandlesWithItsFirstLaunchAlone) {
  const std::vector<std::shared_ptr<DevicePlan>> plans = {LibraryPlan("MatMul"), LibraryPlan("Conv")};
  const auto before = CallCounts();
  ShareGate gate(opened_.device->info().shares, 64);
  const auto share = gate.Take(50);
  ASSERT_TRUE(share);
  for (int lanes = 0; lanes < 2; ++lanes) {
    Lane lane = LaneFor(*plans[0]);
    for (const auto& plan : plans) {
      lane.arguments = LaneFor(*plan).arguments;
      lane.arguments.share = *share;
      for (int round = 0; round < 3; ++round) Run(lane, plan);
    }
    held_.push_back(std::move(lane.stream));
  }
  EXPECT_EQ(CallCounts().synchronising_launches - before.synchronising_launches, 2u)
      << "one handle of each library, whichever lane launches there";
}

// What a plan frees is freed on another thread, while other plans compute.
TEST_F(CudaCalls, APlanThatLeavesWaitsForNothing) {
  auto stays = Plan(4);
  Lane lane = LaneFor(*stays);
  Run(lane, stays);
  ModelBuilder builder;  // its taps lie in memory of its own
  proto::Step& step =
      builder.Step("Resize", {builder.Input("x", {1, 1, 2, 2}), "", builder.Floats({4}, {1, 1, 2, 2})}, "y");
  ModelBuilder::SetText(step, "mode", "linear");
  builder.Output("y", {1, 1, 4, 4});
  auto leaves = *opened_.device->Prepare(builder.model(), builder.weights(), builder.input_specs(),
                                         proto::PRECISION_FP32);
  Lane other = LaneFor(*leaves);
  for (int round = 0; round < 3; ++round) Run(other, leaves);
  const auto before = CallCounts();
  leaves.reset();
  EXPECT_EQ(CallCounts().synchronising_here, before.synchronising_here);
  Run(lane, stays);
  lane.stream.reset();
  other.stream.reset();
  stays.reset();
  opened_.device.reset();  // all is given back before it ends
  EXPECT_GT(CallCounts().synchronising, before.synchronising);
}

TEST_F(CudaCalls, UnmappingIsNotTheCallersToWaitFor) {
  Device& device = *opened_.device;
  const DeviceRange range = *device.Allocate(device.MappingUnit() * 2);
  for (int round = 0; round < 5; ++round) {
    const auto mapped = device.Map(0, std::vector<DeviceRange>{range});
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    const auto before = CallCounts();
    device.Unmap(*mapped);
    EXPECT_EQ(CallCounts().synchronising_here, before.synchronising_here);
  }
}

// Giving access to a mapping waits for the GPU, too: what other threads ask of the memory meanwhile does not.
TEST_F(CudaCalls, OtherCallsGoOnWhileAMappingWaitsForTheGpu) {
  Device& device = *opened_.device;
  const std::vector<DeviceRange> one = {*device.Allocate(device.MappingUnit())};
  const std::vector<DeviceRange> other = {*device.Allocate(device.MappingUnit() * 2)};
  const auto mapped = device.Map(0, one);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  HeldGpu gpu;
  const auto before = CallCounts();
  auto mapping = std::async(std::launch::async, [&] { return device.Map(0, other); });
  const Time give_up = transport::SteadyNow() + kCallsPatience;
  while (CallCounts().synchronising == before.synchronising && transport::SteadyNow() < give_up)
    std::this_thread::yield();
  EXPECT_GT(CallCounts().synchronising, before.synchronising) << "the mapping waits";
  auto unmapping = std::async(std::launch::async, [&] { device.Unmap(*mapped); });
  EXPECT_EQ(unmapping.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  gpu.Release();
  const auto now = mapping.get();
  ASSERT_TRUE(now.ok()) << now.status();
  device.Unmap(*now);
}

// The one that leaves is waited for, whatever else is to leave.
TEST_F(CudaCalls, AnAddressThatWasJustLeftIsMappedAgain) {
  constexpr std::uint64_t kAddress = std::uint64_t{37} << 40;
  Device& device = *opened_.device;
  const std::vector<DeviceRange> pieces = {*device.Allocate(device.MappingUnit() * 2)};
  const std::vector<DeviceRange> others = {*device.Allocate(device.MappingUnit())};
  for (int round = 0; round < 5; ++round) {
    const auto other = device.Map(kAddress - device.MappingUnit().count(), others);
    const auto mapped = device.Map(kAddress, pieces);
    ASSERT_TRUE(mapped.ok() && other.ok()) << mapped.status() << other.status();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapped->address), kAddress);
    EXPECT_EQ(device.Map(kAddress, others).status().code(), absl::StatusCode::kAlreadyExists);
    HeldGpu gpu;
    device.Unmap(*other);
    device.Unmap(*mapped);
    auto again = std::async(std::launch::async, [&] { return device.Map(kAddress, pieces); });
    gpu.Release();
    const auto now = again.get();
    ASSERT_TRUE(now.ok()) << now.status();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(now->address), kAddress);
    device.Unmap(*now);
  }
}

// Code that is loaded by a launch makes it look like a hang.
TEST_F(CudaCalls, TheFirstLaunchOfAPlanLoadsNothing) {
  Open("devices=1");  // a driver that has loaded nothing
  const auto plan = Plan(6);
  Lane lane = LaneFor(*plan);
  const auto before = CallCounts();
  Run(lane, plan);
  EXPECT_EQ(CallCounts().cold_launches, before.cold_launches);
}

TEST_F(CudaCalls, APlanThatBeginsWithAStepOfALibraryIsRecordedWhenItIsMade) {
  for (const char* const op : {"MatMul", "Gemm", "Conv"}) {
    Open("devices=1");  // a driver that has loaded nothing, and libraries without handles
    const auto made = RecordingCounts();
    const auto plan = LibraryPlan(op);
    EXPECT_EQ(RecordingCounts().captured - made.captured, 1u) << op;
    Lane lane = LaneFor(*plan);
    const auto before = CallCounts();
    Run(lane, plan);
    EXPECT_EQ(CallCounts().cold_launches, before.cold_launches) << op;
  }
}

TEST_F(CudaCalls, APlanThatCannotBeRecordedIsLoadedByItsLaunch) {
  Open("no_capture=1");
  const auto plan = Plan(6);
  Lane lane = LaneFor(*plan);
  const auto before = CallCounts();
  Run(lane, plan);
  EXPECT_GT(CallCounts().cold_launches, before.cold_launches);
}

TEST_F(CudaCalls, ACopyTakesOneEventThatKeepsNoTime) {
  Device& device = *opened_.device;
  std::vector<std::byte> host(1 << 20);
  ASSERT_TRUE(device.RegisterHost(host).ok());
  const DeviceRange range = *device.Allocate(MiB(1));
  const auto stream = device.MakeStream();
  const auto before = CallCounts();
  EventPtr last;
  for (int i = 0; i < 16; ++i) last = stream->CopyIn(range, host, nullptr);
  ASSERT_TRUE(last->Wait(kCallsPatience).ok());
  const auto after = CallCounts();
  EXPECT_EQ(after.events - before.events, 16u);
  EXPECT_EQ(after.timed_events - before.timed_events, 0u);
  device.UnregisterHost(host);
}

// What the driver has to bring by itself takes its own, slower way, and so is the rate that the node plans with.
TEST_F(CudaCalls, TheLinkIsMeasuredAsModelsCome) {
  for (const auto& [words, staged] : {std::pair("devices=1", false), std::pair("no_register=1", true)}) {
    opened_ = CudaOpened();
    const auto before = CallCounts();
    Open(words);
    EXPECT_EQ(CallCounts().staged > before.staged, staged) << words;
    EXPECT_GT(opened_.device->info().link.value, 0) << words;
  }
}

// Each of these calls takes long on a real driver: one for each unit at the start, and for a model that is mapped only
// those of its own units.
TEST_F(CudaCalls, UnitsAreMadeOnceAndAModelMapsItsOwn) {
  const auto counts = [] {
    cuda::fake::FakeMemoryCounts now;
    void* const library = dlopen(DriverLibrary().c_str(), RTLD_NOW);
    reinterpret_cast<void (*)(cuda::fake::FakeMemoryCounts*)>(dlsym(library, "FakeCudaMemoryCounts"))(&now);
    return now;
  };
  const auto before = counts();
  Open("");
  const auto opened = counts();
  const std::uint64_t units = SmallOptions().memory.count() / opened_.device->MappingUnit().count();
  EXPECT_EQ(opened.contexts - before.contexts, 1u);
  EXPECT_EQ(opened.created - before.created, units);
  EXPECT_EQ(opened.mapped - before.mapped, units);
  const Bytes unit = opened_.device->MappingUnit();
  const DeviceRange pieces[] = {*opened_.device->Allocate(unit * 3)};
  const auto mapped = opened_.device->Map(0, pieces);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(counts().mapped - opened.mapped, 3u);
  EXPECT_EQ(counts().created, opened.created) << "a model makes no units";
  opened_.device->Unmap(*mapped);
  const Time give_up = transport::SteadyNow() + kCallsPatience;  // a thread of the memory's unmaps it
  while (counts().unmapped == opened.unmapped && transport::SteadyNow() < give_up) std::this_thread::yield();
  EXPECT_EQ(counts().unmapped - opened.unmapped, 1u) << "one call for all units";
  opened_.device->Free(pieces[0]);
  std::vector<std::byte> host(3 << 20);
  ASSERT_TRUE(opened_.device->RegisterHost(host).ok());
  ASSERT_TRUE(opened_.device->RegisterHost(host).ok());
  EXPECT_EQ(counts().registered - opened.registered, 1u) << "the driver registers it once";
  opened_.device->UnregisterHost(host);
  EXPECT_EQ(counts().unregistered, opened.unregistered);
  opened_.device->UnregisterHost(host);
  EXPECT_EQ(counts().unregistered - opened.unregistered, 1u);
  opened_.device.reset();
  EXPECT_EQ(counts().created, opened.created);
}

// Tests before this one have set it for this process.
TEST_F(CudaCalls, StreamsHaveConnectionsOfTheirOwn) {
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  Open("devices=1");  // a driver that is started anew
  EXPECT_EQ(AskDriver("FakeCudaConnections"), 32u);
}

// With two lanes that compute products on a share each: the context, the places of shares that the start shows to
// work, the workspaces, the constants of a plan.
TEST_F(CudaCalls, AWorkersStartTakesLittleMemoryBesideItsModels) {
  constexpr std::uint64_t kMiB = 1 << 20;
  Open("memory=2147483648,context_bytes=314572800,green_bytes=20971520");
  const auto used = [] { return AskDriver("FakeCudaUsedBytes"); };
  const std::uint64_t opened = used() - SmallOptions().memory.count();
  EXPECT_EQ(opened, (300 + 2 * 20) * kMiB) << "the context, and two places";
  const auto plan = Plan(6);
  Lane first = LaneFor(*plan);
  Lane second = LaneFor(*plan);
  ShareGate gate(opened_.device->info().shares, 64);
  for (Lane* lane : {&first, &second}) {
    lane->arguments.share = *gate.Take(24);
    Run(*lane, plan);
  }
  (void)Plan(6);  // waits until what the next lane needs is there
  const std::uint64_t all = used() - SmallOptions().memory.count();
  EXPECT_EQ(all - opened, (2 * 20 + 3 * 32) * kMiB)
      << "a place and a workspace for each lane, and a workspace for the next one";
  EXPECT_LE(all, 512 * kMiB);
}

}  // namespace
}  // namespace troupe::gpu::test

// What only the virtual GPU has: links, profiles, injected faults.
#include "gpu/device/virtual_device.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <ctime>
#include <future>
#include <latch>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gpu/device/compute_share.hpp"
#include "gpu/device/virtual_copy.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_device/small_model.hpp"

namespace troupe::gpu::test {
namespace {

using std::chrono::milliseconds;

std::shared_ptr<transport::LinkBuckets> Links(BytesPerSecond bandwidth) {
  auto links = transport::LinkBuckets::Create({{"gpu0:in", bandwidth}, {"gpu0:out", bandwidth}});
  return std::make_shared<transport::LinkBuckets>(*std::move(links));
}

std::unique_ptr<Device> Make(std::shared_ptr<transport::LinkBuckets> links, const char* profile = nullptr,
                             std::size_t concurrency = 1) {
  VirtualDeviceOptions options;
  options.concurrency = concurrency;
  if (profile != nullptr) options.timed = *ComputeProfile::Parse(profile);
  options.builder = BuildFakePlan;
  return *MakeVirtualDevice(std::move(options), *transport::MemoryFile::Create("test", MiB(16)),
                            std::move(links));
}

TEST(VirtualDevice, CopiesTakeTheTimeOfTheLinkAndAreCountedThere) {
  const auto links = Links({1e9});
  auto device = Make(links);
  EXPECT_EQ(device->info().link.value, 1e9);
  const std::vector<std::byte> bytes(8 << 20);
  const DeviceRange range = *device->Allocate(Bytes(bytes.size()));
  Completion completion;
  {
    auto stream = device->MakeStream();
    stream->CopyIn(range, bytes, [&](const Completion& c) { completion = c; });
  }
  // The copy is never faster than the link, but for the time that a late copy may catch up.
  EXPECT_GE(completion.end - completion.begin, TransferTime(Bytes(bytes.size()), {1e9}) - milliseconds(1));
  EXPECT_EQ(links->passed(0), Bytes(bytes.size()));
  EXPECT_EQ(links->passed(1), Bytes(0));
}

TEST(VirtualDevice, EachCopyOccupiesTheLinkBesidesTheTimeOfItsBytes) {
  constexpr Duration kEach = std::chrono::microseconds(50);
  auto links = std::make_shared<transport::LinkBuckets>(
      *transport::LinkBuckets::Create({{.name = "gpu0:in", .bandwidth = {1e9}, .copy_time = kEach},
                                       {.name = "gpu0:out", .bandwidth = {1e9}}}));
  auto device = Make(links);
  const std::vector<std::byte> bytes(2 << 20);
  ASSERT_TRUE(device->RegisterHost(bytes).ok());
  const DeviceRange range = *device->Allocate(Bytes(bytes.size()));
  const auto occupied_by = [&](std::size_t copies, bool registered) {
    const Bytes before = links->passed(0);
    const std::vector<std::byte> unknown(bytes.size() / copies);
    auto stream = device->MakeStream();
    for (std::size_t i = 0; i < copies; ++i) {
      const Bytes size(bytes.size() / copies);
      const std::span<const std::byte> from =
          registered ? std::span(bytes).subspan(i * size.count(), size.count()) : std::span(unknown);
      EXPECT_TRUE(
          stream->CopyIn(range.Part(size * i, size), from, nullptr)->Wait(std::chrono::seconds(30)).ok());
    }
    return (links->passed(0) - before - Bytes(bytes.size())).count();
  };
  EXPECT_EQ(occupied_by(1, true), 50'000u) << "50 us of a byte each nanosecond";
  EXPECT_EQ(occupied_by(16, true), 16 * 50'000u);
  EXPECT_EQ(occupied_by(1, false), 4 * 50'000u) << "each block goes through the driver's buffer";
  device->UnregisterHost(bytes);
}

// A device that copies from GPU 1 over a link of its own.
struct Destination {
  explicit Destination(BytesPerSecond bandwidth)
      : links(std::make_shared<transport::LinkBuckets>(*transport::LinkBuckets::Create(
            {{"gpu0:in", {6e9}}, {"gpu0:out", {6e9}}, {"gpu1:gpu0", bandwidth}}))) {
    VirtualDeviceOptions options;
    options.link_from = [](std::uint32_t gpu) { return absl::StrCat("gpu", gpu, ":gpu0"); };
    options.builder = BuildFakePlan;
    device =
        *MakeVirtualDevice(std::move(options), *transport::MemoryFile::Create("destination", MiB(16)), links);
  }
  std::shared_ptr<transport::LinkBuckets> links;
  std::unique_ptr<Device> device;
};

TEST(VirtualDevice, CopiesFromAnotherGpuPassTheLinkBetweenTheTwo) {
  Destination destination({1e9});
  auto source = Make(Links({6e9}));
  const Bytes size = MiB(8);
  const DeviceRange from = *source->Allocate(size);
  const auto opened = destination.device->OpenPeer(1, *source->Share(from));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const DeviceRange to = *destination.device->Allocate(size);
  Completion completion;
  {
    auto stream = destination.device->MakeStream();
    stream->CopyPeer(to, *opened, Bytes(0), [&](const Completion& c) { completion = c; });
  }
  EXPECT_TRUE(completion.status.ok()) << completion.status;
  EXPECT_GE(completion.end - completion.begin, TransferTime(size, {1e9}) - milliseconds(1));
  EXPECT_EQ(destination.links->passed(0), Bytes(0));
  EXPECT_EQ(destination.links->passed(2), size);
  EXPECT_GT(destination.device->engine(Engine::kCopyPeer).progress, 0u);
  EXPECT_EQ(destination.device->engine(Engine::kCopyIn).progress, 0u);
}

TEST(VirtualDevice, SharedMemoryCannotBeWritten) {
  auto device = Make(nullptr);
  const auto shared = device->Share(*device->Allocate(MiB(1)));
  ASSERT_TRUE(shared.ok()) << shared.status();
  const int fd = shared->descriptor.get();
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  void* readable = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(readable, MAP_FAILED);
  munmap(readable, 4096);
  EXPECT_EQ(pwrite(fd, "x", 1, 0), -1);
}

TEST(VirtualDevice, ALinkThatIsTakenAwayIsNotUsedForCopies) {
  Destination destination({1e9});
  auto source = Make(nullptr);
  const DeviceRange from = *source->Allocate(MiB(1));
  EXPECT_TRUE(destination.device->OpenPeer(1, *source->Share(from)).ok());
  ASSERT_TRUE(
      destination.device->UseLinks(Links({6e9})).ok());  // the links of a daemon with another topology
  EXPECT_EQ(destination.device->OpenPeer(1, *source->Share(from)).status().code(),
            absl::StatusCode::kNotFound);
  auto without = Make(Links({6e9}));
  EXPECT_FALSE(without->info().peer_copies);
  EXPECT_EQ(without->OpenPeer(1, *source->Share(from)).status().code(), absl::StatusCode::kNotFound);
}

// The test passes the time in, so that it sees step by step what two processes do on one link.
class TwoUsers : public testing::Test {
 protected:
  static constexpr Bytes kBlock = Bytes(CopyOperation::kBlock);
  const Duration pass_ = TransferTime(kBlock, {1e9});
  TwoUsers() {
    EXPECT_TRUE(mine_.Use(links_, "gpu0:in").ok());
    EXPECT_TRUE(others_.Use(again_, "gpu1:in").ok());
  }
  Time Pass(CopyPath& path, Time now) { return path.Pass(kBlock, now_, path.TurnOf(now), now); }
  std::shared_ptr<transport::LinkBuckets> links_ = std::make_shared<transport::LinkBuckets>(
      *transport::LinkBuckets::Create({{"switch", {1e9}, Duration(0)},
                                       {"gpu0:in", {2e9}, Duration(0), "switch"},
                                       {"gpu1:in", {2e9}, Duration(0), "switch"}}));
  std::shared_ptr<transport::LinkBuckets> again_ = std::make_shared<transport::LinkBuckets>(
      *transport::LinkBuckets::Open(transport::UniqueFd(dup(links_->fd()))));
  CopyPath mine_;
  CopyPath others_;
  const Time now_ = Time(std::chrono::hours(1));
};

TEST_F(TwoUsers, TheSwitchIsSharedByTheirTransfers) {
  for (const std::size_t link : links_->PathOf(1)) links_->Want(link, {0, 2}, now_);
  for (const std::size_t link : again_->PathOf(2)) again_->Want(link, {0, 1}, now_);
  EXPECT_EQ(Pass(mine_, now_), now_ + pass_);
  EXPECT_EQ(Pass(others_, now_), now_ + 3 * pass_)
      << "the block comes behind both blocks of a user with two transfers";
  EXPECT_EQ(Pass(mine_, now_ + pass_), now_ + 2 * pass_) << "the block had its turn on the link before";
  EXPECT_EQ(Pass(mine_, now_ + 2 * pass_), now_ + 4 * pass_);
  EXPECT_EQ(Pass(others_, now_ + 2 * pass_), now_ + 6 * pass_);
  EXPECT_EQ(Pass(mine_, now_ + 4 * pass_), now_ + 5 * pass_);
}

TEST_F(TwoUsers, TheLessUrgentYields) {
  for (const std::size_t link : links_->PathOf(1)) links_->Want(link, {7, 1}, now_);
  for (const std::size_t link : again_->PathOf(2)) again_->Want(link, {5, 1}, now_);
  EXPECT_EQ(mine_.TurnOf(now_).blocks, 0u);
  EXPECT_EQ(others_.TurnOf(now_).blocks, 1u);
  EXPECT_EQ(mine_.TurnOf(now_ + transport::LinkBuckets::kFresh).blocks, 1u)
      << "the other user is stuck or dead";
}

TEST_F(TwoUsers, AloneThereIsNothingToTakeAhead) {
  for (const std::size_t link : links_->PathOf(1)) links_->Want(link, {0, 5}, now_);
  EXPECT_EQ(Pass(mine_, now_), now_ + pass_);
  EXPECT_EQ(links_->passed(0), kBlock);
}

TEST(VirtualDevice, CopiesFromMemoryThatItDoesNotKnowAreTheSameBytes) {
  auto device = Make(Links({6e9}));
  std::vector<std::byte> bytes((3 << 20) + 5);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  const DeviceRange range = *device->Allocate(Bytes(bytes.size()));
  for (const bool registered : {false, true}) {
    if (registered) {
      ASSERT_TRUE(device->RegisterHost(bytes).ok());
    }
    std::vector<std::byte> back(bytes.size());
    auto stream = device->MakeStream();
    stream->CopyIn(range, bytes, nullptr);
    EXPECT_TRUE(stream->CopyOut(back, range, nullptr)->Wait(std::chrono::seconds(30)).ok());
    EXPECT_EQ(bytes, back);
    if (registered) device->UnregisterHost(bytes);
  }
}

TEST(VirtualDevice, AShortCopyDoesNotWaitForALongOne) {
  auto device = Make(Links({2e8}));
  const std::vector<std::byte> big(8 << 20);
  const std::vector<std::byte> small(100 << 10);
  const DeviceRange one = *device->Allocate(Bytes(big.size()));
  const DeviceRange two = *device->Allocate(Bytes(small.size()));
  std::vector<std::string> order;  // written by the one thread of the engine
  std::latch both(1);
  {
    auto before = device->MakeStream();
    auto first = device->MakeStream();
    auto second = device->MakeStream();
    before->CopyIn(two, small,
                   [&](const Completion&) { both.wait(); });  // this callback holds the engine's thread
    first->CopyIn(one, big, [&](const Completion&) { order.push_back("long"); });
    second->CopyIn(two, small, [&](const Completion&) { order.push_back("short"); });
    both.count_down();
  }
  EXPECT_THAT(order, testing::ElementsAre("short", "long"));
}

TEST(VirtualDevice, LinksWithoutThisDeviceAreRefused) {
  auto device = Make(nullptr);
  auto other = transport::LinkBuckets::Create({{"gpu7:in", {1e9}}});
  EXPECT_EQ(device->UseLinks(std::make_shared<transport::LinkBuckets>(*std::move(other))).code(),
            absl::StatusCode::kNotFound);
}

TEST(VirtualDevice, ATimedRunTakesItsTime) {
  auto device = Make(nullptr, "default 1ms\nabc 30ms # this one\n");
  proto::Model model = SmallModel();
  model.set_weights_digest("abc");
  const std::vector<proto::TensorSpec> inputs = {Spec("x", {1, kColumns})};
  auto plan = *device->Prepare(model, SmallWeights(), inputs, proto::PRECISION_FP32);
  LaunchArguments arguments;
  arguments.weights = *device->Allocate(Bytes(64));
  arguments.activations = *device->Allocate(Bytes(0));
  arguments.inputs = {*device->Allocate(Bytes(16))};
  arguments.outputs = {*device->Allocate(Bytes(16))};
  Completion completion;
  {
    auto stream = device->MakeStream();
    stream->Launch(plan, arguments, [&](const Completion& c, auto) { completion = c; });
  }
  EXPECT_TRUE(completion.status.ok());
  EXPECT_GE(completion.end - completion.begin, milliseconds(30));
  EXPECT_GE(device->compute_busy(), milliseconds(30));
}

TEST(SharedClock, PassesTheSlowerTheMoreWork) {
  const Time begin = Time(std::chrono::hours(1));
  SharedClock clock(begin);
  EXPECT_EQ(clock.Read(begin + milliseconds(3)), milliseconds(3)) << "nothing works";
  clock.Join(begin + milliseconds(10));
  EXPECT_EQ(clock.Read(begin + milliseconds(20)), milliseconds(20));
  EXPECT_EQ(clock.When(milliseconds(40)), begin + milliseconds(40));
  clock.Join(begin + milliseconds(20));  // two share the clock: 20 more milliseconds of work take 40
  EXPECT_EQ(clock.When(milliseconds(40)), begin + milliseconds(60));
  EXPECT_EQ(clock.Read(begin + milliseconds(30)), milliseconds(25));
  clock.Join(begin + milliseconds(30));
  clock.Join(begin + milliseconds(30));  // four share the clock: each has a quarter
  EXPECT_EQ(clock.Read(begin + milliseconds(50)), milliseconds(30));
  clock.Leave(begin + milliseconds(50));
  clock.Leave(begin + milliseconds(50));
  clock.Leave(begin + milliseconds(50));
  EXPECT_EQ(clock.When(milliseconds(40)), begin + milliseconds(60));
  clock.Leave(begin + milliseconds(60));
  EXPECT_EQ(clock.Read(begin + milliseconds(65)), milliseconds(45));
}

struct TimedRun {
  TimedRun(Device& device, const char* digest) : stream(device.MakeStream()) {
    proto::Model model = SmallModel();
    model.set_weights_digest(digest);
    const std::vector<proto::TensorSpec> inputs = {Spec("x", {1, kColumns})};
    plan = *device.Prepare(model, SmallWeights(), inputs, proto::PRECISION_FP32);
    arguments.weights = *device.Allocate(Bytes(64));
    arguments.activations = *device.Allocate(Bytes(0));
    arguments.inputs = {*device.Allocate(Bytes(16))};
    arguments.outputs = {*device.Allocate(Bytes(16))};
  }
  void Launch() {
    stream->Launch(plan, arguments, [this](const Completion& c, auto) { completion = c; });
  }
  std::unique_ptr<Stream> stream;
  std::shared_ptr<DevicePlan> plan;
  LaunchArguments arguments;
  Completion completion;
};

TEST(VirtualDevice, TimedRunsAtATimeTakeTheTimeOfTheirSum) {
  auto device = Make(nullptr, "long 40ms\nshort 20ms\n", 3);
  std::vector<std::unique_ptr<TimedRun>> runs;
  for (const char* digest : {"long", "short", "short"})
    runs.push_back(std::make_unique<TimedRun>(*device, digest));
  for (const auto& run : runs) run->Launch();
  for (const auto& run : runs) run->stream.reset();
  Time first = Time::max();
  Time last = Time::min();
  for (const auto& run : runs) {
    EXPECT_TRUE(run->completion.status.ok()) << run->completion.status;
    EXPECT_GE(run->completion.end - run->completion.begin, milliseconds(20));
    first = std::min(first, run->completion.begin);
    last = std::max(last, run->completion.end);
  }
  // An engine that gave each launch all of itself would need no more time than the longest launch.
  EXPECT_GE(last - first, milliseconds(80));
  EXPECT_GE(device->compute_busy(), milliseconds(80));
  EXPECT_LE(device->compute_busy(), last - first) << "time is counted once, however many launches share it";
}

// A computation that ends when the test lets it.
class StuckPlan final : public FakePlan {
 public:
  explicit StuckPlan(std::shared_future<void> let_go) : FakePlan(1), let_go_(std::move(let_go)) {}
  absl::StatusOr<std::vector<proto::TensorSpec>> Run(const PlanBindings& bindings) const override {
    if (absl::Status status = bindings.before_step(0); !status.ok()) return status;
    let_go_.wait();
    return FakePlan::Run(bindings);
  }

 private:
  std::shared_future<void> let_go_;
};

TEST(VirtualDevice, ALaunchThatHangsBesideOthersShowsAtItsStream) {
  std::promise<void> let_go;
  VirtualDeviceOptions options;
  options.concurrency = 2;
  options.builder = [held = let_go.get_future().share()](const proto::Model& model, auto, auto,
                                                         int) -> absl::StatusOr<std::unique_ptr<Plan>> {
    if (model.weights_digest() == "stuck") return std::make_unique<StuckPlan>(held);
    return std::make_unique<FakePlan>(1);
  };
  auto device =
      *MakeVirtualDevice(std::move(options), *transport::MemoryFile::Create("test", MiB(16)), nullptr);
  TimedRun stuck(*device, "stuck");
  TimedRun lively(*device, "lively");
  stuck.arguments.activations = lively.arguments.activations = *device->Allocate(Bytes(16));
  stuck.Launch();
  while (stuck.stream->launches().progress == 0) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t all = device->engine(Engine::kCompute).progress;
    EXPECT_TRUE(
        lively.stream->Launch(lively.plan, lively.arguments, nullptr)->Wait(std::chrono::seconds(30)).ok());
    EXPECT_GT(device->engine(Engine::kCompute).progress, all);
    EXPECT_TRUE(stuck.stream->launches().busy);
    EXPECT_EQ(stuck.stream->launches().progress, 1u);
  }
  let_go.set_value();
  stuck.stream.reset();
  EXPECT_TRUE(stuck.completion.status.ok());
}

TEST(VirtualDevice, TimedNeedsShapes) {
  auto device = Make(nullptr, "default 1ms");
  proto::Model model = SmallModel();
  model.mutable_outputs(0)->set_shape(1, -1);
  const std::vector<proto::TensorSpec> inputs = {Spec("x", {1, kColumns})};
  EXPECT_EQ(device->Prepare(model, SmallWeights(), inputs, proto::PRECISION_FP32).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(VirtualDevice, AStalledLinkShowsAsABusyEngineThatDoesNotMove) {
  const std::vector<std::byte> bytes(1 << 20);
  std::unique_ptr<Stream> stream;
  auto device = Make(Links({6e9}));
  const DeviceRange range = *device->Allocate(Bytes(bytes.size()));
  ASSERT_TRUE(device->StallCopies().ok());
  EXPECT_FALSE(device->engine(Engine::kCopyIn).busy);
  stream = device->MakeStream();
  const EventPtr event = stream->CopyIn(range, bytes, nullptr);
  EXPECT_EQ(event->Wait(milliseconds(20)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(device->engine(Engine::kCopyIn).busy);
  EXPECT_LE(device->engine(Engine::kCopyIn).progress, 1u);
  device.reset();  // closing the device cancels launches that hang
  EXPECT_EQ(event->status().code(), absl::StatusCode::kCancelled);
}

TEST(VirtualDevice, AHungComputeLooksBusyEvenWhenIdle) {
  auto device = Make(nullptr);
  ASSERT_TRUE(device->HangCompute().ok());
  EXPECT_TRUE(device->engine(Engine::kCompute).busy);
}

TEST(VirtualDevice, AnOperationBehindAFailedEventFailsWithIt) {
  // A gate fails: its launch fails, and so do the launches that wait for it; the stream itself goes on.
  std::unique_ptr<Device> device = Make(nullptr);
  const std::vector<proto::TensorSpec> inputs = {Spec("x", {1, kColumns})};
  auto plan = *device->Prepare(SmallModel(), SmallWeights(), inputs, proto::PRECISION_FP32);
  LaunchArguments arguments;
  arguments.weights = *device->Allocate(Bytes(64));
  arguments.activations = *device->Allocate(Bytes(16));
  arguments.inputs = {*device->Allocate(Bytes(16))};
  arguments.outputs = {*device->Allocate(Bytes(16))};
  auto failed = std::make_shared<VirtualEvent>();
  failed->Complete(absl::DataLossError("gone"));
  arguments.gate = [failed](std::size_t) { return failed; };
  auto stream = device->MakeStream();
  auto other = device->MakeStream();
  const EventPtr launched = stream->Launch(plan, arguments, nullptr);
  other->Wait(launched);
  std::vector<std::byte> back(16);
  EXPECT_EQ(other->CopyOut(back, arguments.outputs[0], nullptr)->Wait(std::chrono::seconds(30)).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(stream->CopyOut(back, arguments.outputs[0], nullptr)->Wait(std::chrono::seconds(30)).ok());
}

TEST(ComputeProfile, BadLinesAreNamed) {
  for (const char* text : {"default", "default 5", "default 5ms 6ms", "default -5ms", "default 2000m",
                           "default 5ms 0%", "default 5ms 101%", "default 5ms 40", "default 5ms 40% 2"}) {
    const auto profile = ComputeProfile::Parse(std::string("# fine\n") + text);
    EXPECT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(profile.status().message()), testing::HasSubstr("line 2")) << text;
  }
  EXPECT_EQ(ComputeProfile::Read("/nonexistent").status().code(), absl::StatusCode::kNotFound);
}

TEST(ComputeProfile, TheMostSpecificEntryWins) {
  const auto profile = *ComputeProfile::Parse("default 2ms\na 3ms\nb 4ms\n");
  EXPECT_EQ(profile.CostOf("a", "b").time, milliseconds(3));
  EXPECT_EQ(profile.CostOf("x", "b").time, milliseconds(4));
  EXPECT_EQ(profile.CostOf("x", "y").time, milliseconds(2));
}

TEST(ComputeProfile, AShareSlowsARunUnlessTheModelCannotUseMore) {
  const auto profile = *ComputeProfile::Parse("default 16ms\nsmall 16ms 25%\n");
  const ShareLadder ladder(128, 8, 16);
  const auto on = [&](const char* model, std::uint32_t percent) {
    return profile.CostOf(model, "").On(ladder.For(percent));
  };
  EXPECT_EQ(on("large", 0), milliseconds(16));
  EXPECT_EQ(on("large", 100), milliseconds(16));
  EXPECT_EQ(on("large", 50), milliseconds(32));
  EXPECT_EQ(on("large", 6), milliseconds(256)) << "on 8 SMs";
  EXPECT_EQ(on("small", 50), milliseconds(16));
  EXPECT_EQ(on("small", 25), milliseconds(16));
  EXPECT_EQ(on("small", 12), milliseconds(32));
  EXPECT_EQ(on("small", 6), milliseconds(64));
}

// Two launches at a time on halves of the GPU: each takes its own time, and neither waits for the other.
TEST(VirtualDevice, TimedLaunchesWithSharesTakeTheTimeOfTheirs) {
  auto device = Make(nullptr, "default 10ms", 2);
  EXPECT_EQ(device->info().shares.sms(), 132u);
  ShareGate gate(device->info().shares, 64);
  TimedRun half(*device, "half");
  TimedRun quarter(*device, "quarter");
  half.arguments.share = *gate.Take(50);
  quarter.arguments.share = *gate.Take(24);
  for (TimedRun* run : {&half, &quarter}) run->Launch();
  for (TimedRun* run : {&half, &quarter}) run->stream.reset();
  EXPECT_GE(half.completion.end - half.completion.begin, milliseconds(20)) << "64 of 132 SMs";
  EXPECT_GE(quarter.completion.end - quarter.completion.begin, milliseconds(41)) << "32 of 132 SMs";
  EXPECT_GE(device->compute_busy(), milliseconds(41));
}

// A computation of so much of the processor's time.
class BusyPlan final : public FakePlan {
 public:
  BusyPlan() : FakePlan(1) {}
  absl::StatusOr<std::vector<proto::TensorSpec>> Run(const PlanBindings& bindings) const override {
    if (absl::Status status = bindings.before_step(0); !status.ok()) return status;
    const Duration until = ThreadTime() + kTakes;
    while (ThreadTime() < until) {
    }
    return FakePlan::Run(bindings);
  }
  static constexpr Duration kTakes = milliseconds(5);

 private:
  static Duration ThreadTime() {
    timespec time{};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec);
  }
};

// With results, too, a launch on a part of the SMs takes as much longer, as far as the model can use more.
TEST(VirtualDevice, LaunchesWithResultsTakeTheTimeOfTheirShares) {
  VirtualDeviceOptions options;
  options.builder = [](const auto&...) -> absl::StatusOr<std::unique_ptr<Plan>> {
    return std::make_unique<BusyPlan>();
  };
  options.profile = *ComputeProfile::Parse("default 1ms\nsmall 1ms 24%\n");
  auto device =
      *MakeVirtualDevice(std::move(options), *transport::MemoryFile::Create("test", MiB(16)), nullptr);
  ShareGate gate(device->info().shares, 1);
  const auto took = [&](const char* model, std::uint32_t percent) {
    TimedRun run(*device, model);
    run.arguments.activations = *device->Allocate(Bytes(16));
    run.arguments.share = *gate.Take(percent);
    run.Launch();
    run.stream.reset();
    EXPECT_TRUE(run.completion.status.ok()) << run.completion.status;
    gate.Give(run.arguments.share);
    return run.completion.end - run.completion.begin;
  };
  EXPECT_GE(took("large", 24), BusyPlan::kTakes * 132 / 32) << "32 of 132 SMs";
  EXPECT_GE(took("small", 12), BusyPlan::kTakes * 132 * 24 / 100 / 16) << "16 SMs, of the 32 that it can use";
}

}  // namespace
}  // namespace troupe::gpu::test

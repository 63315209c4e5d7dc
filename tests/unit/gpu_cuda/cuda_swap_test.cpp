// A run whose weights are on their way: the GPU itself waits for each group, and the host gives it no more work while
// the groups come. Counted on the fake driver.
#include <thread>

#include "gpu/cuda/signal_words.hpp"
#include "gpu/cuda/weights_ahead.hpp"
#include "tests/unit/gpu_cuda/swap_fixture.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::test {
namespace {

using testing::HasSubstr;

class CudaSwap : public CudaSwapFixture {};

// A run passes the host when its inputs have come, since its launch is put on the stream then, and when the launch has
// ended, since its outputs leave then. The fake driver counts the first, and each group that it would pass the host for.
TEST_F(CudaSwap, ASwappedRunPassesTheHostAtMostTwiceWhateverItsGroups) {
  Open("devices=1", 64);
  const auto lane = MakeLane();
  for (const std::size_t groups : {2u, 8u, 32u}) {
    BeginLoad(groups);
    Bring(0);
    const auto before = CallCounts();
    BringInputs(*lane);
    Launch(*lane);
    EXPECT_TRUE(IsPutWhole(*lane)) << groups << " groups";
    BringAll();
    const Completion completion = EndOf(*lane);
    EXPECT_TRUE(completion.status.ok()) << completion.status;
    ExpectResult(*lane);
    const auto after = CallCounts();
    constexpr std::uint64_t kOutputs = 1;
    EXPECT_LE(after.bursts - before.bursts + kOutputs, 2u) << groups << " groups";
    EXPECT_EQ(after.synchronising, before.synchronising) << groups << " groups";
  }
}

// The same with a limit that the plan is known to take little of, as nearly all runs of a node have one.
TEST_F(CudaSwap, ALimitAddsNoRoundTripOnceThePlanIsKnown) {
  Open("devices=1", 64);
  const auto lane = MakeLane();
  lane->arguments.limit = std::chrono::hours(10);
  for (int round = 0; round < 2; ++round) {  // its times are learned
    Launch(*lane);
    ASSERT_TRUE(EndOf(*lane).status.ok());
  }
  BeginLoad(32);
  Bring(0);
  const auto before = CallCounts();
  Launch(*lane);
  EXPECT_TRUE(IsPutWhole(*lane));
  BringAll();
  EXPECT_TRUE(EndOf(*lane).status.ok());
  EXPECT_EQ(CallCounts().bursts - before.bursts, 1u);
  ExpectResult(*lane);
}

// As the worker's main loop does with models that have addresses of their own: it orders the copies of one, and then
// maps another, which waits for the launch that waits for those copies.
TEST_F(CudaSwap, AMappingThatWaitsForALaunchHoldsUpNoneOfItsCopies) {
  Open("devices=1", 64);
  const auto lane = MakeLane();
  LinkPort::Options options;
  options.block = Bytes(64);  // one block at a time, so that most are ordered after the mapping has begun
  options.batch = 1;
  port_ = std::make_unique<LinkPort>(*opened_.device, LinkPort::Direction::kIn, options);
  BeginLoad(32);
  Launch(*lane);
  EXPECT_TRUE(IsPutWhole(*lane));
  TransferRequest request;
  for (const Group& group : load_->groups())
    request.pieces.push_back(
        {range_.Part(Bytes(group.offset), Bytes(group.length)), weights_.data() + group.offset});
  request.signals = signals_;
  request.landed = [load = load_](std::size_t, Time now) { load->Arrived(now); };
  port_->Put(std::move(request));
  const Bytes unit = opened_.device->MappingUnit();
  const DeviceRange room = *opened_.device->Allocate(unit * 2);
  const Bytes begin(reinterpret_cast<std::uintptr_t>(room.address) % unit.count());
  const std::vector<DeviceRange> pieces = {room.Part(begin > Bytes(0) ? unit - begin : begin, unit)};
  const auto mapped = opened_.device->Map(0, pieces);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_TRUE(EndOf(*lane).status.ok());
  ExpectResult(*lane);
  opened_.device->Unmap(*mapped);
}

// A first launch that takes long to be put on its stream looks like a hang otherwise: none of its steps has run yet.
TEST_F(CudaSwap, EachStepThatIsPutOnTheStreamIsProgress) {
  Open("devices=1", 64);
  const auto lane = MakeLane();
  BeginLoad(8);
  const std::uint64_t before = lane->stream->launches().progress;
  Launch(*lane);
  EXPECT_TRUE(IsPutWhole(*lane));
  EXPECT_GE(lane->stream->launches().progress - before, 64u);
  EXPECT_TRUE(lane->stream->launches().busy);
  BringAll();
  EXPECT_TRUE(EndOf(*lane).status.ok());
}

TEST_F(CudaSwap, TwoLaunchesWaitForTheSameGroups) {
  Open("devices=1", 16);
  const auto first = MakeLane();
  const auto second = MakeLane();
  BeginLoad(8);
  for (const auto& lane : {first.get(), second.get()}) Launch(*lane);
  for (const auto& lane : {first.get(), second.get()}) EXPECT_TRUE(IsPutWhole(*lane));
  BringAll();
  for (const auto& lane : {first.get(), second.get()}) {
    EXPECT_TRUE(EndOf(*lane).status.ok());
    ExpectResult(*lane);
  }
}

// What a worker's memory and a watchdog hear of comes when it is reached, not at the end.
TEST_F(CudaSwap, MarksAreToldWhileTheGpuWaits) {
  Open("devices=1", 16);
  const auto lane = MakeLane();
  BeginLoad(4);
  std::promise<void> reached;
  lane->arguments.marks = {4};
  lane->arguments.reached = [&](std::size_t) { reached.set_value(); };
  Launch(*lane);
  EXPECT_TRUE(IsPutWhole(*lane));
  Bring(0);
  EXPECT_EQ(reached.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_FALSE(lane->event->done());
  // A launch that waits for weights is no hang.
  const std::uint64_t progress = lane->stream->launches().progress;
  const Time until = transport::SteadyNow() + kPatience;
  while (lane->stream->launches().progress == progress && transport::SteadyNow() < until)
    std::this_thread::yield();
  EXPECT_GT(lane->stream->launches().progress, progress);
  BringAll();
  EXPECT_TRUE(EndOf(*lane).status.ok());
  ExpectResult(*lane);
}

// A stream takes so many operations; a call for more blocks, and nothing may hold up the copies.
TEST_F(CudaSwap, OnlySoManyStepsAreAheadOfTheirWeights) {
  constexpr std::size_t kMost = cuda::WeightsAhead::kMostSteps;
  Open("devices=1", 2 * kMost + 64);
  const auto lane = MakeLane();
  BeginLoad(2);
  const auto before = CallCounts();
  Launch(*lane);
  const Time until = transport::SteadyNow() + kPatience;
  while (lane->asked < kMost && transport::SteadyNow() < until) std::this_thread::yield();
  EXPECT_EQ(lane->asked, kMost);
  BringAll();
  EXPECT_TRUE(EndOf(*lane).status.ok());
  EXPECT_EQ(lane->asked, plan_->step_count());
  EXPECT_LE(CallCounts().bursts - before.bursts, 1u + 2u) << "once for each 256 steps";
  ExpectResult(*lane);
}

// The words are the device's, for all that waits at a time.
TEST_F(CudaSwap, WithoutAFreeWordTheHostIsTold) {
  Open("devices=1", 16);
  const auto lane = MakeLane();
  EXPECT_EQ(opened_.device->MakeSignals(cuda::SignalWords::kWords + 1), nullptr);
  for (int round = 0; round < 2; ++round) {
    const SignalsPtr all = opened_.device->MakeSignals(cuda::SignalWords::kWords);
    ASSERT_NE(all, nullptr) << "those of the round before are free again";
    BeginLoad(4);
    EXPECT_EQ(signals_, nullptr);
    Launch(*lane);
    BringAll();
    EXPECT_TRUE(EndOf(*lane).status.ok());
    ExpectResult(*lane);
  }
}

TEST_F(CudaSwap, WordsThatWereRaisedAreLoweredForTheNextLoad) {
  Open("devices=1", 16);
  const auto lane = MakeLane();
  opened_.device->MakeSignals(cuda::SignalWords::kWords)->Release();
  BeginLoad(4);
  Launch(*lane);
  EXPECT_TRUE(IsPutWhole(*lane));
  Bring(0);
  EXPECT_FALSE(lane->event->done());
  BringAll();
  EXPECT_TRUE(EndOf(*lane).status.ok());
  ExpectResult(*lane);
}

// What a GPU cannot do, or would wait for for ever, is found out at the start.
TEST_F(CudaSwap, AGpuThatWaitsForNoWordsIsServedByTheHost) {
  struct Case {
    const char* machine;
    const char* why;
  };
  for (const Case& c : {Case{"devices=1,no_words=1", "CUDA_ERROR_NOT_SUPPORTED"},
                        Case{"devices=1,no_green_words=1", "CUDA_ERROR_NOT_SUPPORTED"},
                        Case{"devices=1,held_writes=1", "holds up another one"}}) {
    Open(c.machine, 16);
    EXPECT_THAT(opened_.summary, HasSubstr("launches wait for weights by way of the host ("));
    EXPECT_THAT(opened_.summary, HasSubstr(c.why));
    EXPECT_EQ(opened_.device->MakeSignals(1), nullptr);
    const auto lane = MakeLane();
    BeginLoad(8);
    Bring(0);
    const auto before = CallCounts();
    Launch(*lane);
    for (std::size_t group = 1; group < 8; ++group) {
      const Time until = transport::SteadyNow() + kPatience;
      while (lane->asked <= 2 * group && transport::SteadyNow() < until) std::this_thread::yield();
      EXPECT_EQ(lane->asked, 2 * group + 1) << "the step that needs the group is waited for on the host";
      Bring(group);
    }
    EXPECT_TRUE(EndOf(*lane).status.ok());
    EXPECT_EQ(CallCounts().bursts - before.bursts, 8u) << "a round trip for each group but the first";
    ExpectResult(*lane);
    lane->stream.reset();
    port_.reset();
    plan_.reset();
    opened_ = CudaOpened();
  }
}

TEST_F(CudaSwap, TheWorkersLineSaysWhereLaunchesWait) {
  Open("devices=1", 4);
  EXPECT_THAT(opened_.summary, HasSubstr("launches wait for weights on the GPU"));
}

}  // namespace
}  // namespace troupe::gpu::test

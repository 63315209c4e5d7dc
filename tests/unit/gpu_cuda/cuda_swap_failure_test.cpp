// Weights that do not come, while a launch waits for them on the GPU: it ends, with an error, and the next one computes.
#include <thread>

#include "gpu/cuda/driver.hpp"
#include "gpu/cuda/signal_words.hpp"
#include "tests/unit/gpu_cuda/swap_fixture.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::test {
namespace {

using testing::HasSubstr;

class CudaSwapFailure : public CudaSwapFixture {
 protected:
  void ExpectTheNextOneComputes(Lane& lane) {
    EXPECT_TRUE(opened_.device->Health().ok());
    lane.arguments.limit = {};
    BeginLoad(8);
    ASSERT_NE(signals_, nullptr);
    Launch(lane);
    BringAll();
    const Completion completion = EndOf(lane);
    EXPECT_TRUE(completion.status.ok()) << completion.status;
    ExpectResult(lane);
    lane.stream.reset();  // lets go of what it has told of
    port_.reset();
    load_.reset();
    signals_.reset();
    EXPECT_NE(opened_.device->MakeSignals(cuda::SignalWords::kWords), nullptr) << "no word is lost";
  }
};

// The driver refuses one copy: its source lies across the end of a registration that the device does not know.
TEST_F(CudaSwapFailure, ACopyThatFailsEndsTheLaunchThatWaits) {
  Open("devices=1", 16);
  const auto lane = MakeLane();
  BeginLoad(8);
  const auto driver = *cuda::Driver::Load(DriverLibrary());
  std::byte* const inside = weights_.data() + load_->groups()[4].offset + 64;
  ASSERT_EQ(driver->cuMemHostRegister(inside, 16, CU_MEMHOSTREGISTER_PORTABLE), CUDA_SUCCESS);
  std::vector<std::size_t> marks;
  lane->arguments.marks = {8, 10};
  lane->arguments.reached = [&](std::size_t step) { marks.push_back(step); };
  Launch(*lane);
  EXPECT_TRUE(IsPutWhole(*lane));
  for (std::size_t group = 0; group <= 4; ++group) Bring(group);
  const Completion completion = EndOf(*lane);
  EXPECT_EQ(completion.status.code(), absl::StatusCode::kInvalidArgument) << completion.status;
  EXPECT_THAT(std::string(completion.status.message()), HasSubstr("copying to the GPU"));
  EXPECT_EQ(lane->event->status(), completion.status);
  EXPECT_THAT(marks, testing::ElementsAre(8)) << "what came was computed with, and nothing behind it counts";
  ASSERT_EQ(driver->cuMemHostUnregister(inside), CUDA_SUCCESS);
  lane->arguments.marks.clear();
  ExpectTheNextOneComputes(*lane);
}

TEST_F(CudaSwapFailure, ALoadThatIsGivenUpEndsTheLaunchThatWaits) {
  Open("devices=1", 16);
  const auto lane = MakeLane();
  for (const std::size_t there : {0u, 1u, 7u}) {
    BeginLoad(8);
    Launch(*lane);
    EXPECT_TRUE(IsPutWhole(*lane));
    for (std::size_t group = 0; group < there; ++group) Bring(group);
    load_->Failed(absl::CancelledError("the model is not needed any more"));
    EXPECT_EQ(EndOf(*lane).status.code(), absl::StatusCode::kCancelled) << there;
  }
  ExpectTheNextOneComputes(*lane);
}

// What comes from another GPU counts when that says so, after the copies. The launch may have computed by then.
TEST_F(CudaSwapFailure, WeightsThatAreHereAndDoNotCountAreTheLaunchsError) {
  Open("devices=1", 16);
  const auto lane = MakeLane();
  for (const bool counts : {true, false}) {
    BeginLoad(8);
    std::vector<float> y(16);
    const auto out = opened_.device->MakeStream();
    ASSERT_TRUE(
        out->CopyIn(lane->arguments.outputs[0], std::as_bytes(std::span(y)), nullptr)->Wait(kPatience).ok());
    Launch(*lane);
    EXPECT_TRUE(IsPutWhole(*lane));
    for (std::size_t group = 0; group < 7; ++group) Bring(group);
    Bring(7, false);
    const Time until = transport::SteadyNow() + kPatience;
    do {
      ASSERT_TRUE(out->CopyOut(std::as_writable_bytes(std::span(y)), lane->arguments.outputs[0], nullptr)
                      ->Wait(kPatience)
                      .ok());
    } while (y[15] != 136 && transport::SteadyNow() < until);
    EXPECT_EQ(y[15], 136) << "the sum of all weights";
    EXPECT_FALSE(lane->event->done());
    if (counts) load_->Arrived(transport::SteadyNow());
    if (!counts) load_->Failed(absl::NotFoundError("it was not pinned all the time"));
    EXPECT_EQ(EndOf(*lane).status.code(), counts ? absl::StatusCode::kOk : absl::StatusCode::kNotFound);
  }
  ExpectTheNextOneComputes(*lane);
}

// A launch that is put on its stream after its load has failed does not wait either.
TEST_F(CudaSwapFailure, ALaunchOfALoadThatHasFailedEndsAtOnce) {
  Open("devices=1", 16);
  const auto lane = MakeLane();
  BeginLoad(8);
  Bring(0);
  load_->Failed(absl::DataLossError("gone"));
  Launch(*lane);
  EXPECT_EQ(EndOf(*lane).status.code(), absl::StatusCode::kDataLoss);
  ExpectTheNextOneComputes(*lane);
}

// An unknown plan has a launch group for each four steps. The limit passes at once; the launch is cut when the GPU has
// got the weights of the first group and has come to its end, not while it waits.
TEST_F(CudaSwapFailure, ALimitThatPassesDuringTheWaitCutsTheLaunchBehindIt) {
  Open("devices=1", 16);
  const auto lane = MakeLane();
  lane->arguments.limit = Duration(1);
  BeginLoad(8);  // of two steps each
  Bring(0);
  Launch(*lane);
  while (lane->asked < 4) std::this_thread::yield();
  EXPECT_FALSE(lane->event->done()) << "the GPU waits for the second group";
  Bring(1);
  const Completion cut = EndOf(*lane);
  EXPECT_EQ(cut.status.code(), absl::StatusCode::kDeadlineExceeded) << cut.status;
  EXPECT_THAT(std::string(cut.status.message()), HasSubstr("cut before step 4 of"));
  EXPECT_GT(cut.cut_after, Duration::zero());
  EXPECT_EQ(lane->asked, 4u) << "nothing behind the cut was put on the stream";
  BringAll();
  ExpectTheNextOneComputes(*lane);
}

TEST_F(CudaSwapFailure, ALoadThatFailsIsTheErrorOfALaunchWithALimit) {
  Open("devices=1", 16);
  const auto lane = MakeLane();
  lane->arguments.limit = std::chrono::hours(10);
  BeginLoad(8);
  Bring(0);
  Launch(*lane);
  while (lane->asked < 4) std::this_thread::yield();
  load_->Failed(absl::DataLossError("gone"));
  EXPECT_EQ(EndOf(*lane).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(lane->asked, 4u);
  ExpectTheNextOneComputes(*lane);
}

// A lost GPU waits for nothing any more.
TEST_F(CudaSwapFailure, ALostGpuEndsTheLaunchThatWaits) {
  Open("devices=1", 16);
  const auto lane = MakeLane();
  BeginLoad(8);
  machine_.emplace("devices=1,lost_after=3");  // copies from now on
  Launch(*lane);
  EXPECT_TRUE(IsPutWhole(*lane));
  for (std::size_t group = 0; group < 3; ++group) Bring(group);
  EXPECT_FALSE(EndOf(*lane).status.ok());
  EXPECT_FALSE(opened_.device->Health().ok());
}

}  // namespace
}  // namespace troupe::gpu::test

// Launches with a limit are cut between two groups of steps, plain ones and graphs, and the launches behind
// them go on.
#include <future>

#include "gmock/gmock.h"
#include "gpu/cuda/fake/fake_driver.hpp"
#include "gpu/device/virtual_event.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_cuda/fake_cuda.hpp"
#include "tests/unit/gpu_engine/model_builder.hpp"

namespace troupe::gpu::test {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int kSteps = 41;
// A limit that is passed at the first look, on any machine.
constexpr Duration kShortest{1};
// A limit that is never passed; no plan of this test takes a notable part of it.
constexpr Duration kLongest = std::chrono::hours(10);

// y = x + 41 in that many steps.
class CudaLimit : public testing::Test {
 protected:
  static constexpr Duration kPatience = std::chrono::minutes(1);

  void SetUp() override {
    if (RealDriver()) GTEST_SKIP() << "only the fake driver tells what it did";
    opened_ = cuda::Open(SmallOptions());
    ASSERT_NE(opened_.device, nullptr) << opened_.why;
    stream_ = opened_.device->MakeStream();
    ModelBuilder builder;
    std::string before = builder.Input("x", {4});
    for (int step = 1; step <= kSteps; ++step) {
      const std::string after = step == kSteps ? "y" : "t" + std::to_string(step);
      builder.Step("Add", {before, builder.Floats({1}, {1})}, after);
      before = after;
    }
    builder.Output("y", {4});
    const std::vector<std::byte> weights = builder.weights();
    plan_ = *opened_.device->Prepare(builder.model(), weights, builder.input_specs(), proto::PRECISION_FP32);
    ASSERT_GT(plan_->step_count(), 8u);
    const auto take = [this](Bytes size) { return *opened_.device->Allocate(size); };
    places_.weights = take(plan_->weights_bytes());
    places_.activations = take(plan_->activation_bytes());
    places_.inputs = {take(plan_->input_bytes(0))};
    places_.outputs = {take(plan_->output_bytes(0))};
    EXPECT_TRUE(stream_->CopyIn(places_.weights, weights, nullptr)->Wait(kPatience).ok());
  }

  Completion Launch(Duration limit) {
    LaunchArguments arguments = places_;
    arguments.limit = limit;
    auto done = std::make_shared<std::promise<Completion>>();
    auto told = done->get_future();
    stream_->Launch(plan_, arguments,
                    [done](const Completion& completion, auto) { done->set_value(completion); });
    if (told.wait_for(kPatience) != std::future_status::ready)
      return {absl::InternalError("never told"), {}, {}};
    return told.get();
  }
  void ExpectComputes(Duration limit, float x) {
    const std::vector<float> in(4, x);
    std::vector<float> out(4, -1);
    stream_->CopyIn(places_.inputs[0], std::as_bytes(std::span(in)), nullptr);
    const Completion launched = Launch(limit);
    EXPECT_TRUE(launched.status.ok()) << launched.status;
    EXPECT_EQ(launched.cut_after, Duration::zero());
    const EventPtr last =
        stream_->CopyOut(std::as_writable_bytes(std::span(out)), places_.outputs[0], nullptr);
    ASSERT_TRUE(last->Wait(kPatience).ok()) << last->status();
    EXPECT_THAT(out, Each(x + kSteps));
  }
  void ExpectCut(const char* where = "cut before step 4 of") {
    const Completion cut = Launch(kShortest);
    EXPECT_EQ(cut.status.code(), absl::StatusCode::kDeadlineExceeded) << cut.status;
    EXPECT_THAT(std::string(cut.status.message()), HasSubstr(where));
    EXPECT_GT(cut.cut_after, Duration::zero());
    EXPECT_TRUE(opened_.device->Health().ok()) << "the GPU is healthy after the cut";
  }
  static std::uint64_t GraphsLaunched() {
    void* const library = dlopen(DriverLibrary().c_str(), RTLD_NOW);
    cuda::fake::FakeGraphCounts counts;
    reinterpret_cast<void (*)(cuda::fake::FakeGraphCounts*)>(dlsym(library, "FakeCudaGraphCounts"))(&counts);
    return counts.launched;
  }

  CudaOpened opened_;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<DevicePlan> plan_;
  LaunchArguments places_;
};

TEST_F(CudaLimit, ALaunchIsCutBetweenItsGroupsAndTheNextOneComputes) {
  for (int round = 0; round < 3; ++round) {
    ExpectCut();
    ExpectComputes(kLongest, static_cast<float>(round));
    ExpectComputes(Duration::zero(), static_cast<float>(round));
  }
}

// With the times that were learned the plan becomes one group, which is one graph.
TEST_F(CudaLimit, AQuickPlanWithALimitIsOneGraph) {
  for (int round = 0; round < 2; ++round)
    ExpectComputes(kLongest, 1);  // the times are learned, and the next launch uses them
  const std::uint64_t before = GraphsLaunched();
  for (int round = 0; round < 3; ++round) ExpectComputes(kLongest, static_cast<float>(round));
  EXPECT_EQ(GraphsLaunched() - before, 3u);
}

// A graph cannot be stopped in its middle, so there is one graph for each group.
TEST_F(CudaLimit, ALaunchOfGraphsIsCutBetweenTwoOfThem) {
  for (int round = 0; round < 3; ++round) ExpectCut();
  const std::uint64_t before = GraphsLaunched();
  ExpectCut();
  EXPECT_EQ(GraphsLaunched() - before, 1u)
      << "only the group that passed the limit was launched, and none behind it";
  ExpectComputes(kLongest, 5);
}

// The launch's first steps run while its weights still come; the time in which the GPU waits for them does
// not count as the launch's own.
TEST_F(CudaLimit, ALaunchThatWaitsForItsWeightsIsCutToo) {
  std::vector<std::byte> bytes(1 << 20);
  const DeviceRange other = *opened_.device->Allocate(Bytes(bytes.size()));
  const auto copies = opened_.device->MakeStream();
  for (const Duration limit : {kShortest, kLongest}) {
    places_.gate = [&](std::size_t step) -> EventPtr {
      return step % 3 == 0 ? copies->CopyIn(other, bytes, nullptr) : nullptr;
    };
    if (limit == kShortest) ExpectCut("cut before step");
    if (limit == kLongest) ExpectComputes(limit, 7);
  }
}

// A launch that takes turns asks between its groups, and waits for the turn that it is told.
TEST_F(CudaLimit, ALaunchPausesBetweenItsGroupsUntilItsTurn) {
  LaunchArguments arguments = places_;
  std::vector<Duration> used;
  std::promise<void> paused;
  const auto turn = std::make_shared<VirtualEvent>();
  arguments.group = kShortest;
  arguments.turn = [&](Duration since) -> EventPtr {
    used.push_back(since);
    if (used.size() != 2) return nullptr;
    paused.set_value();
    return turn;
  };
  auto done = std::make_shared<std::promise<Completion>>();
  auto told = done->get_future();
  stream_->Launch(plan_, arguments,
                  [done](const Completion& completion, auto) { done->set_value(completion); });
  ASSERT_EQ(paused.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_NE(told.wait_for(std::chrono::milliseconds(1)), std::future_status::ready)
      << "it waits for its turn";
  turn->Complete(absl::OkStatus());
  ASSERT_EQ(told.wait_for(kPatience), std::future_status::ready);
  const Completion completion = told.get();
  EXPECT_TRUE(completion.status.ok()) << completion.status;
  EXPECT_GE(completion.paused, std::chrono::milliseconds(1));
  EXPECT_GT(used.size(), 2u);
  ExpectComputes(Duration::zero(), 3);
}

// A turn that will not come ends the launch.
TEST_F(CudaLimit, ALaunchWhoseTurnDoesNotComeEndsWithTheReason) {
  LaunchArguments arguments = places_;
  arguments.group = kShortest;
  arguments.turn = [](Duration) -> EventPtr {
    const auto turn = std::make_shared<VirtualEvent>();
    turn->Complete(absl::CancelledError("the worker ends"));
    return turn;
  };
  auto done = std::make_shared<std::promise<Completion>>();
  auto told = done->get_future();
  stream_->Launch(plan_, arguments,
                  [done](const Completion& completion, auto) { done->set_value(completion); });
  ASSERT_EQ(told.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(told.get().status.code(), absl::StatusCode::kCancelled);
  ExpectComputes(Duration::zero(), 4);
}

}  // namespace
}  // namespace troupe::gpu::test

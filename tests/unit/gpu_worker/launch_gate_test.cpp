// Runs of one worker at the gate of a GPU that other workers use, too.
#include "gpu/worker/launch_gate.hpp"

#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

// A page on which other workers take and give back just when the test says: each look finds the next entry, and the last
// one for ever.
class ScriptedPage final : public GatePage {
 public:
  std::vector<SharesTaken> looks{{}};
  int refusals = 0;  // of takings to come, for what another worker took at the same time and gave back again

  [[nodiscard]] SharesTaken Others() const override {
    return looks[next_ + 1 < looks.size() ? next_++ : next_];
  }
  [[nodiscard]] bool Set(const SharesTaken&, std::uint32_t) override {
    if (refusals == 0) return true;
    --refusals;
    return false;
  }
  void Reduce(const SharesTaken&) override {}
  bool ClearDead() override { return false; }

 private:
  mutable std::size_t next_ = 0;
};

using GateRun = gpu::Run;  // tests have a function of that name

constexpr SharesTaken kNothing{};
constexpr SharesTaken kOneRun{.without_share = 1};
constexpr SharesTaken kFirstUnits{.units = 0b0011};

// A part of the SMs that no other run has.
proto::GpuSharing OnPercent(std::uint32_t percent) {
  proto::GpuSharing sharing;
  sharing.set_sm_partition(percent);
  return sharing;
}

class LaunchGateTest : public testing::Test {
 protected:
  // Of a GPU with four units of SMs.
  LaunchGateTest() : gate_({}, ShareLadder(32, 8, 4), page_, *queue_, [] {}) {}

  // A run that has come, of a function of its own that shares the GPU so.
  GateRun& Come(const proto::GpuSharing& sharing = {}) {
    RunRequest request;
    request.order.set_function(std::string(1, static_cast<char>('a' + runs_.size())));
    *request.order.mutable_sharing() = sharing;
    Reply unheard(runs_.size(), Time(), [](const auto&) {});
    runs_.push_back(std::make_unique<GateRun>(std::move(request), std::move(unheard)));
    gate_.Join(*runs_.back());
    return *runs_.back();
  }
  // What could begin has begun; whether the worker then looks again by itself.
  bool LooksAgain() {
    const Time now = transport::SteadyNow();
    gate_.Settled(false, now);
    return gate_.next_turn() <= now + std::chrono::milliseconds(1);
  }

  std::shared_ptr<ScriptedPage> page_ = std::make_shared<ScriptedPage>();
  std::unique_ptr<TaskQueue> queue_ = *TaskQueue::Create();
  LaunchGate gate_;
  std::vector<std::unique_ptr<GateRun>> runs_;
};

TEST_F(LaunchGateTest, ARunThatAnotherWorkerBarsIsLookedAtAgain) {
  page_->looks = {kOneRun};
  GateRun& run = Come();
  EXPECT_FALSE(gate_.Begin(run));
  EXPECT_TRUE(LooksAgain());
  EXPECT_FALSE(LooksAgain()) << "nothing was refused since";
  page_->looks = {kNothing};
  EXPECT_TRUE(gate_.Begin(run));
  EXPECT_FALSE(LooksAgain());
}

TEST_F(LaunchGateTest, ARunIsLookedAtAgainThoughTheWorkerThatBarredItHasEndedMeanwhile) {
  page_->looks = {kOneRun, kNothing};
  EXPECT_FALSE(gate_.Begin(Come()));
  EXPECT_TRUE(LooksAgain()) << "no other event would wake it";
}

TEST_F(LaunchGateTest, TwoWorkersThatTakeAtOnceAndBothGiveBackLookAgain) {
  page_->refusals = 1;
  GateRun& run = Come();
  EXPECT_FALSE(gate_.Begin(run));
  EXPECT_TRUE(LooksAgain()) << "neither will see anything of the other's";
  EXPECT_TRUE(gate_.Begin(run));
}

TEST_F(LaunchGateTest, ARunThatOthersBarIsNotForgottenForALaterOneThatOwnRunsBar) {
  EXPECT_TRUE(gate_.Begin(Come(OnPercent(50))));
  page_->looks = {kFirstUnits, kNothing};
  EXPECT_FALSE(gate_.Begin(Come(OnPercent(75)))) << "others have half of the GPU";
  EXPECT_FALSE(gate_.Begin(Come())) << "the first run has SMs of its own";
  EXPECT_TRUE(LooksAgain());
}

TEST_F(LaunchGateTest, AWorkerDoesNotLookAgainForWhatItsOwnRunsBar) {
  EXPECT_TRUE(gate_.Begin(Come()));
  EXPECT_FALSE(gate_.Begin(Come()));
  EXPECT_FALSE(LooksAgain()) << "the end of the first run tells it";
}

TEST_F(LaunchGateTest, ALaunchThatPausedAndFindsNoRoomIsLookedAtAgain) {
  proto::GpuSharing sharing;
  sharing.set_quota_limit(1);
  GateRun& run = Come(sharing);
  ASSERT_TRUE(gate_.Begin(run));
  ASSERT_NE(run.arguments.turn(std::chrono::milliseconds(20)), nullptr)
      << "of 10 ms in each window of a second";
  page_->looks = {kOneRun, kNothing};
  EXPECT_FALSE(gate_.Resume(transport::SteadyNow() + std::chrono::seconds(5)));
  EXPECT_TRUE(LooksAgain());
}

}  // namespace
}  // namespace troupe::gpu

// A run that has the GPU for longer than its limit is cut, and its neighbours go on.
#include "gmock/gmock.h"
#include "tests/unit/gpu_worker/runner_fixture.hpp"

namespace troupe::gpu::test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kSteps = 600;

// A run of "endless" takes ten seconds, in steps of 17 ms; a run of "quick" takes a millisecond.
class RunLimitTest : public RunnerTest {
 protected:
  RunLimitTest()
      : RunnerTest([](VirtualDeviceOptions options) {
          options.timed = *ComputeProfile::Parse("endless 10s\nquick 1ms\n");
          return MakePlain(std::move(options));
        }) {}
  void Bring(const std::string& name) {
    proto::Model model = SmallModel();
    model.set_name(name);
    model.set_weights_digest(name);
    while (model.steps_size() < kSteps) *model.add_steps() = proto::Step(model.steps(model.steps_size() - 1));
    const auto copy = PlaceModel(*host_, name, model, SmallWeights());
    const std::size_t plans = preparer_->cache().size();
    Prepare(0, copy, 1);
    PumpUntilStage(plans + 1);
    SwapIn(sequence_, copy);
    EXPECT_EQ(Code(sequence_++), 0);
  }
  std::uint64_t sequence_ = 1000;
};

TEST_F(RunLimitTest, ARunIsCutBetweenItsStepsAndTheNextOneBegins) {
  Bring("endless");
  Bring("quick");
  order_.clear();
  run_limit_ = milliseconds(80);
  Run(1, "endless");
  run_limit_ = Duration::zero();
  Run(2, "quick");
  EXPECT_EQ(Code(2), 0);
  EXPECT_EQ(Code(1), CodeOf(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(order_, ElementsAre(1, 2));
  const proto::WorkerOutcome& cut = Await(1);
  EXPECT_THAT(cut.message(), HasSubstr("cut before step"));
  EXPECT_GE(Duration(cut.run().compute_ns()), milliseconds(80));
  EXPECT_EQ(cut.run().outputs_size(), 0);
  EvictAll();
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
  EXPECT_EQ(runner_->in_flight(), 0u);
}

// The first run holds the GPU for as long as the test wants, however slow this machine is.
TEST_F(RunnerTest, ARunThatNeverBeganSaysThatItDidNotCompute) {
  BringSmall("m");
  gate_->Set(true);
  Run(10, "m");
  AwaitBusy();
  run_limit_ = milliseconds(80);
  Run(11, "m", 1, 0, 1);
  while (runner_->NextDue() == Time::max() && !HasFatalFailure())
    PumpOnce();  // the run's inputs come in first
  runner_->Expire(runner_->NextDue());
  EXPECT_EQ(Code(11), CodeOf(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Await(11).run().compute_ns(), 0);
  EXPECT_FALSE(outcomes_.contains(10));
  gate_->Set(false);
  EXPECT_EQ(Code(10), 0);
}

}  // namespace
}  // namespace troupe::gpu::test

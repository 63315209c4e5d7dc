// Functions with quotas of time and limits of memory in one worker, on a device that takes its time.
#include "gmock/gmock.h"
#include "tests/unit/gpu_worker/runner_fixture.hpp"

namespace troupe::gpu::test {
namespace {

using std::chrono::milliseconds;

// A run takes 6 ms on the whole GPU.
class QuotasTest : public RunnerTest {
 protected:
  explicit QuotasTest(SharingOptions sharing = {.window = milliseconds(20)})
      : RunnerTest(
            [](VirtualDeviceOptions options) {
              options.concurrency = 4;
              options.timed = *ComputeProfile::Parse("default 6ms");
              return MakePlain(std::move(options));
            },
            {.group = KiB(256), .block = KiB(64)}, {}, sharing) {
    BringSmall("m");
  }
  // The main loop, as the worker runs it.
  const proto::WorkerOutcome& AwaitInTurns(std::uint64_t sequence) {
    while (!outcomes_.contains(sequence)) {
      if (runner_->NextDue() <= transport::SteadyNow()) runner_->Expire(transport::SteadyNow());
      if (!queue_->Run()) std::this_thread::yield();
    }
    return outcomes_[sequence];
  }
  static Duration SpanOf(const proto::WorkerOutcome& outcome) {
    return Duration(outcome.end_ns() - outcome.begin_ns());
  }
};

TEST_F(QuotasTest, ALongRunPausesInItsMiddleAndIsCountedWithoutItsPauses) {
  function_ = "f/1";
  sharing_.set_quota_limit(10);  // 2 ms of 20
  Run(11, "m");
  const auto& outcome = AwaitInTurns(11);
  ASSERT_EQ(outcome.code(), 0) << outcome.message();
  EXPECT_GE(SpanOf(outcome), milliseconds(20)) << "6 ms at 2 ms of each window take three windows at least";
  EXPECT_GE(Duration(outcome.run().compute_ns()), milliseconds(6));
  EXPECT_LT(Duration(outcome.run().compute_ns()), SpanOf(outcome) - milliseconds(10));
}

TEST_F(QuotasTest, OthersHaveTheGpuWhileARunPauses) {
  function_ = "f/1";
  sharing_.set_quota_limit(1);  // 0.2 ms of 20: a run takes thirty windows
  Run(11, "m");
  function_ = "g/1";
  sharing_.Clear();
  for (std::uint64_t run = 12; run < 20; ++run) Run(run, "m");
  for (std::uint64_t run = 12; run < 20; ++run) EXPECT_EQ(AwaitInTurns(run).code(), 0);
  EXPECT_FALSE(outcomes_.contains(11));
  EXPECT_EQ(AwaitInTurns(11).code(), 0);
}

TEST_F(QuotasTest, AFunctionWhoseWindowIsUsedUpSaysWhenTheNextOneBegins) {
  function_ = "f/1";
  sharing_.set_quota_limit(1);  // 0.2 ms of 20, and the last group of a run takes as much at least
  Run(11, "m");
  const auto& outcome = AwaitInTurns(11);
  EXPECT_EQ(outcome.code(), 0);
  const Duration next(outcome.run().next_turn_in_ns());
  EXPECT_GT(next, Duration::zero());
  EXPECT_LE(next, milliseconds(20));
}

TEST_F(QuotasTest, ARunThatWaitsForItsWindowIsCancelledAndOneThatPausesIsFailedWithItsDaemon) {
  function_ = "f/1";
  sharing_.set_quota_limit(1);
  Run(11, "m");
  while (runner_->NextDue() == Time::max()) {  // until it has paused
    if (!queue_->Run()) std::this_thread::yield();
  }
  Run(12, "m");
  runner_->Cancel(12);
  EXPECT_EQ(AwaitInTurns(12).code(), CodeOf(absl::StatusCode::kCancelled));
  runner_->FailAll(absl::UnavailableError("the daemon is gone"));
  EXPECT_EQ(AwaitInTurns(11).code(), 0) << "what computes goes on";
}

TEST_F(QuotasTest, AFunctionHasNoMoreDeviceMemoryThanItMayTake) {
  function_ = "f/1";
  sharing_.set_gpu_mem(1);
  Run(11, "m");
  const auto& outcome = AwaitInTurns(11);
  EXPECT_EQ(outcome.code(), CodeOf(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(outcome.message(), testing::AllOf(testing::HasSubstr("f/1"), testing::HasSubstr("gpu_mem")));
  // Room for one run beside the weights: the others wait, and each has its turn.
  const Bytes weights = residency_->table().SizeOf("m");
  sharing_.set_sm_partition(12);
  sharing_.set_gpu_mem(weights.count() + 1024);
  for (std::uint64_t run = 12; run < 20; ++run) Run(run, "m");
  for (std::uint64_t run = 12; run < 20; ++run) EXPECT_EQ(AwaitInTurns(run).code(), 0);
}

class RacingTest : public QuotasTest {
 protected:
  RacingTest()
      : QuotasTest({.name = "racing", .policy = *FindSharingPolicy("racing"), .window = milliseconds(20)}) {}
};

TEST_F(RacingTest, NoQuotaHolds) {
  function_ = "f/1";
  sharing_.set_quota_limit(1);
  for (std::uint64_t run = 11; run < 15; ++run) Run(run, "m");
  for (std::uint64_t run = 11; run < 15; ++run) {
    EXPECT_EQ(AwaitInTurns(run).code(), 0);
    EXPECT_EQ(outcomes_[run].run().next_turn_in_ns(), 0);
  }
}

}  // namespace
}  // namespace troupe::gpu::test

#include "node/requests/run_limit.hpp"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/models/profiles.hpp"
#include "tests/unit/node/scheduler_fixture.hpp"

namespace troupe::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

KnownRuns Known(int runs, Duration each, std::uint32_t cuts = 0) {
  KnownRuns known;
  for (int run = 0; run < runs; ++run) known.times.Observe(each);
  known.cuts = cuts;
  return known;
}

TEST(RunLimit, ADeclaredOneCountsWhateverIsKnown) {
  for (const KnownRuns& known : {Known(0, {}), Known(100, milliseconds(1)), Known(3, seconds(2), 9)}) {
    const RunLimit limit = RunLimitFor(seconds(90), known, 12);
    EXPECT_EQ(limit.limit, seconds(90));
    EXPECT_EQ(limit.source, RunLimit::Source::kDeclared);
  }
}

TEST(RunLimit, IsLearnedWhenEnoughRunsAreKnown) {
  EXPECT_EQ(RunLimitFor({}, Known(31, milliseconds(100)), 0).source, RunLimit::Source::kDefault);
  const RunLimit limit = RunLimitFor({}, Known(32, milliseconds(100)), 0);
  EXPECT_EQ(limit.source, RunLimit::Source::kLearned);
  EXPECT_GE(limit.limit, seconds(2));
  EXPECT_LE(limit.limit, milliseconds(2829));
}

TEST(RunLimit, ALearnedOneIsASecondAtLeastAndTenAtMost) {
  EXPECT_EQ(RunLimitFor({}, Known(500, milliseconds(1)), 0).limit, seconds(1));
  EXPECT_EQ(RunLimitFor({}, Known(500, seconds(4)), 0).limit, seconds(10));
}

TEST(RunLimit, ALearnedOneIsLongerOnAPartOfTheGpu) {
  const Duration whole = RunLimitFor({}, Known(50, milliseconds(60)), 100).limit;
  EXPECT_EQ(RunLimitFor({}, Known(50, milliseconds(60)), 50).limit, 2 * whole);
  EXPECT_EQ(RunLimitFor({}, Known(50, milliseconds(60)), 1).limit, seconds(10));
}

TEST(RunLimit, CutsInARowShortenTheLimitOfAFunctionOfWhichLittleIsKnown) {
  EXPECT_EQ(RunLimitFor({}, Known(0, {}, 0), 0).limit, seconds(10));
  EXPECT_EQ(RunLimitFor({}, Known(0, {}, 1), 0).limit, seconds(5));
  EXPECT_EQ(RunLimitFor({}, Known(0, {}, 4), 0).limit, seconds(1));
  EXPECT_EQ(RunLimitFor({}, Known(0, {}, ~0u), 0).limit, seconds(1));
}

TEST(RunLimit, ACutSaysWhatHappenedAndWhatToDo) {
  const absl::Status status = RunCut("spin", milliseconds(1125), {seconds(1), RunLimit::Source::kLearned});
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  for (const char* part : {"'spin'", "1.12", "learned", "run_limit"})
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  EXPECT_THAT(std::string(RunCut("spin", seconds(9), {seconds(8), RunLimit::Source::kDeclared}).message()),
              HasSubstr("declared"));
}

class LearnedRunsTest : public SchedulerTest {
 protected:
  LearnedRunsTest() {
    Gpus(1);
    Model("a", 20);
  }
  // One request for "a" is served, or ends with `status`.
  Consequences RunOnce(RunDone done) {
    Submit(next_++, "a");
    const Dispatch dispatch = Next();
    Loaded(dispatch);
    done.gpu = dispatch.gpu;
    done.request = dispatch.request;
    Consequences effects = scheduler.Apply(done, now);
    scheduler.Check();
    return effects;
  }
  Consequences Cut() {
    return RunOnce(
        {.status = RunCut("f-a", seconds(12), {seconds(10)}), .computed = seconds(12), .cut = true});
  }

 private:
  std::uint64_t next_ = 1;
};

TEST_F(LearnedRunsTest, RunsThatEndedByThemselvesAreKnown) {
  EXPECT_EQ(scheduler.RunsOf(ModelNamed("a"), 0).times.runs(), 0u);
  EXPECT_EQ(scheduler.RunsOf(ModelNamed("nothing of this name"), 0).times.runs(), 0u);
  for (int run = 0; run < 40; ++run) RunOnce({.took = milliseconds(90), .computed = milliseconds(80)});
  EXPECT_EQ(scheduler.RunsOf(ModelNamed("a"), 0).times.runs(), 40u);
  EXPECT_GE(scheduler.RunsOf(ModelNamed("a"), 0).times.Percentile(99), milliseconds(80));
  EXPECT_LT(scheduler.RunsOf(ModelNamed("a"), 0).times.Percentile(99), milliseconds(120));
  RunOnce({.took = milliseconds(90), .waited_for_weights = true});
  EXPECT_EQ(scheduler.RunsOf(ModelNamed("a"), 0).times.runs(), 40u)
      << "it is not known how long the run computed";
}

TEST_F(LearnedRunsTest, ACutIsTheAnswerAndNoRunTime) {
  const Consequences effects = Cut();
  ASSERT_EQ(effects.finished.size(), 1u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(effects.finished[0].status));
  EXPECT_THAT(std::string(effects.finished[0].status.message()), HasSubstr("was cut"));
  EXPECT_TRUE(scheduler.Decide(now).dispatches.empty()) << "the request is not tried again";
  Cut();
  EXPECT_EQ(scheduler.RunsOf(ModelNamed("a"), 0).times.runs(), 0u);
  EXPECT_EQ(scheduler.RunsOf(ModelNamed("a"), 0).cuts, 2u);
  RunOnce({.took = milliseconds(3), .computed = milliseconds(2)});
  EXPECT_EQ(scheduler.RunsOf(ModelNamed("a"), 0).cuts, 0u);
}

TEST_F(LearnedRunsTest, AreKeptOverARestart) {
  for (int run = 0; run < 40; ++run) RunOnce({.took = milliseconds(90), .computed = milliseconds(80)});
  GpuKinds kinds({}, KindRule::kAware);
  proto::NodeProfiles read;
  ASSERT_TRUE(read.ParseFromString(ExportProfiles(scheduler, kinds).SerializeAsString()));
  SwapScheduler other({}, *FindSchedulerPolicies(PolicyNames()));
  other.AddGpu(0, MiB(100));
  ASSERT_TRUE(ImportProfiles(read, kinds, other).ok());
  other.DescribeModel(ModelNamed("a"), MiB(20), MiB(1));
  EXPECT_EQ(other.RunsOf(ModelNamed("a"), 0).times.runs(), 40u);
  EXPECT_EQ(RunLimitFor({}, other.RunsOf(ModelNamed("a"), 0), 0).limit,
            RunLimitFor({}, scheduler.RunsOf(ModelNamed("a"), 0), 0).limit);
  for (int bucket = 0; bucket < 500; ++bucket) read.mutable_models(0)->add_run_histogram(~0u);
  EXPECT_TRUE(ImportProfiles(read, kinds, other).ok());
  EXPECT_LE(other.RunsOf(ModelNamed("a"), 0).times.runs(), RunTimeSketch::kMostRuns);
}

}  // namespace
}  // namespace troupe::node

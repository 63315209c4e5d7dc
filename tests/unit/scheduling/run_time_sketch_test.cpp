#include "scheduling/run_time_sketch.hpp"

#include "gtest/gtest.h"
#include "scheduling/cost_model.hpp"

namespace troupe {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(RunTimeSketch, KnowsNothingAtFirst) {
  EXPECT_EQ(RunTimeSketch().runs(), 0u);
  EXPECT_EQ(RunTimeSketch().Percentile(99), Duration::zero());
  EXPECT_TRUE(RunTimeSketch().Counts().empty());
}

TEST(RunTimeSketch, TellsAPercentileAtMostABucketTooLarge) {
  RunTimeSketch sketch;
  for (int run = 0; run < 99; ++run) sketch.Observe(milliseconds(5));
  sketch.Observe(milliseconds(700));
  EXPECT_EQ(sketch.runs(), 100u);
  for (const double percent : {1.0, 50.0, 99.0}) {
    EXPECT_GE(sketch.Percentile(percent), milliseconds(5));
    EXPECT_LE(sketch.Percentile(percent), microseconds(7072));
  }
  EXPECT_GE(sketch.Percentile(99.5), milliseconds(700));
  EXPECT_LE(sketch.Percentile(100), milliseconds(990));
}

TEST(RunTimeSketch, TakesTimesThatMakeNoSense) {
  RunTimeSketch sketch;
  sketch.Observe(milliseconds(-5));
  sketch.Observe(Duration::zero());
  EXPECT_EQ(sketch.Percentile(100), microseconds(1));
  sketch.Observe(Duration::max());
  EXPECT_EQ(sketch.runs(), 3u);
  EXPECT_GT(sketch.Percentile(100), hours(0));
  EXPECT_LE(sketch.Percentile(100), hours(1));
}

TEST(RunTimeSketch, ForgetsOldRuns) {
  RunTimeSketch sketch;
  for (int run = 0; run < 1000; ++run) sketch.Observe(milliseconds(800));
  for (int run = 0; run < 20'000; ++run) sketch.Observe(milliseconds(2));
  EXPECT_LE(sketch.runs(), RunTimeSketch::kMostRuns);
  EXPECT_LE(sketch.Percentile(99), milliseconds(3));
}

TEST(RunTimeSketch, ComesBackFromItsCounts) {
  RunTimeSketch sketch;
  for (int run = 1; run < 200; ++run) sketch.Observe(milliseconds(run));
  const RunTimeSketch back = RunTimeSketch::Of(sketch.Counts());
  EXPECT_EQ(back.runs(), sketch.runs());
  for (const double percent : {1.0, 30.0, 50.0, 99.0, 100.0})
    EXPECT_EQ(back.Percentile(percent), sketch.Percentile(percent));
}

TEST(RunTimeSketch, CutsCountsOfADamagedFile) {
  const RunTimeSketch sketch = RunTimeSketch::Of(std::vector<std::uint32_t>(1000, ~0u));
  EXPECT_EQ(sketch.runs(), RunTimeSketch::kMostRuns);
  EXPECT_LE(sketch.Counts().size(), RunTimeSketch::kBuckets);
}

TEST(RunTimeSketch, IsKeptByTheCostModelAndForgottenWithItsModel) {
  CostModel costs({.max_models = 2});
  const CostModel::Id model = costs.Hold("a");
  for (int run = 0; run < 40; ++run) costs.ObserveCompute(model, milliseconds(80));
  costs.NoteCut(model);
  costs.NoteCut(model);
  EXPECT_EQ(costs.LearnedOf(model, 0)->times.runs(), 40u) << "the time of a run that was cut does not count";
  EXPECT_EQ(costs.LearnedOf(model, 0)->cuts, 2u);
  costs.ObserveCompute(model, milliseconds(80));
  EXPECT_EQ(costs.LearnedOf(model, 0)->cuts, 0u);
  CostModel other;
  other.Restore(costs.Known(), {});
  EXPECT_EQ(other.LearnedOf(other.Hold("a"), 0)->times.Percentile(99),
            costs.LearnedOf(model, 0)->times.Percentile(99));
  EXPECT_EQ(other.LearnedOf(other.Hold("b"), 0)->times.runs(), 0u);
  for (const char* name : {"b", "c"}) costs.ObserveCompute(costs.Hold(name), milliseconds(1));
  EXPECT_EQ(costs.LearnedOf(model, 0)->times.runs(), 0u) << "the model has been unseen for longest";
}

}  // namespace
}  // namespace troupe

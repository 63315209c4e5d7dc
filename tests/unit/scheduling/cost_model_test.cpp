#include "scheduling/cost_model.hpp"

#include <gtest/gtest.h>

namespace troupe::cost_model_test {
namespace {

using std::chrono::milliseconds;

TEST(CostModel, LearnsFromOutcomes) {
  CostModel costs({.link = {1e9}, .run = milliseconds(10)});
  EXPECT_EQ(costs.LoadTime(Bytes(1'000'000)), milliseconds(1));
  EXPECT_EQ(costs.RunTime("m"), milliseconds(10));
  costs.ObserveLoad(Bytes(1'000'000), milliseconds(2));
  costs.ObserveLoad(Bytes(10), milliseconds(500));  // too small to say anything
  EXPECT_EQ(costs.LoadTime(Bytes(1'000'000)), milliseconds(2));
  costs.ObserveRun("m", milliseconds(20));
  EXPECT_EQ(costs.RunTime("m"), milliseconds(20));
  for (int i = 0; i < 50; ++i) costs.ObserveRun("m", milliseconds(40));
  EXPECT_NEAR(ToMillis(costs.RunTime("m")), 40, 0.1);
  RunningEstimate estimate;
  estimate.Observe(milliseconds(-5));  // a clock that went back
  EXPECT_EQ(estimate.Or(milliseconds(1)), Duration::zero());
}

TEST(CostModel, HeavyIsWhatSwappingSlows) {
  CostModel costs({.link = {1e9}, .run = milliseconds(10)});
  const Bytes mb(1'000'000);
  // No run was seen: the time of the load is compared with a run of the default length.
  EXPECT_FALSE(costs.Heavy("m", mb * 12));
  EXPECT_TRUE(costs.Heavy("m", mb * 14));
  // Only a swapped run was seen: most of it was the load, or most of it was the run.
  costs.ObserveSwapped("m", milliseconds(15));
  EXPECT_TRUE(costs.Heavy("m", mb * 14));
  EXPECT_FALSE(costs.Heavy("m", mb * 5));
  // Runs with and without a swap were seen, as in Torpor's Table 4: 9 and 13 ms for ResNet-50, 14 and 17 for
  // Inception-v3.
  costs.ObserveRun("resnet", milliseconds(9));
  EXPECT_FALSE(costs.Heavy("resnet", mb * 11));  // the load alone would not slow it
  costs.ObserveSwapped("resnet", milliseconds(13));
  EXPECT_TRUE(costs.Heavy("resnet", mb * 11));
  costs.ObserveRun("inception", milliseconds(14));
  costs.ObserveSwapped("inception", milliseconds(17));
  EXPECT_FALSE(costs.Heavy("inception", mb * 109));
}

TEST(CostModel, ANumberStaysTheModelsThatHoldIt) {
  CostModel costs({.max_models = 2});
  const CostModel::Id a = costs.Hold("a");
  EXPECT_EQ(costs.Hold("a"), a);
  EXPECT_EQ(costs.RunTime(a), CostDefaults().run);
  EXPECT_TRUE(costs.Known().empty()) << "no run of the model was seen";
  costs.ObserveRun("a", milliseconds(3));
  EXPECT_EQ(costs.RunTime(a), milliseconds(3));
  for (int i = 0; i < 100; ++i) {
    const CostModel::Id other = costs.Hold("other" + std::to_string(i));
    ASSERT_NE(other, a);
    ASSERT_LT(other, 5u) << "numbers are used again";
    costs.ObserveSwapped(other, milliseconds(4));
    ASSERT_LE(costs.Known().size(), 2u);
    costs.Release(other);
  }
  EXPECT_EQ(costs.RunTime(a), CostDefaults().run) << "other models were seen since";
  costs.ObserveRun(a, milliseconds(5));
  EXPECT_EQ(costs.RunTime("a"), milliseconds(5));
  costs.Release(a);
  costs.Release(a);
  EXPECT_EQ(costs.RunTime("a"), milliseconds(5)) << "the times that were seen are kept";
  EXPECT_EQ(costs.Hold("a"), a);
}

TEST(CostModel, IsKeptAndRestored) {
  CostModel costs({.max_models = 2});
  costs.ObserveLoad(Bytes(1'000'000), milliseconds(2));
  costs.ObserveRun("a", milliseconds(3));
  costs.ObserveSwapped("b", milliseconds(4));
  costs.ObserveRun("c", milliseconds(5));  // a has been unseen for longest
  ASSERT_EQ(costs.Known().size(), 2u);
  EXPECT_EQ(costs.Known()[0].model, "b");
  CostModel again;
  const auto before = again.revision();
  again.Restore(costs.Known(), costs.nanos_per_byte());
  EXPECT_NE(again.revision(), before);
  EXPECT_EQ(again.LoadTime(Bytes(1'000'000)), milliseconds(2));
  EXPECT_EQ(again.RunTime("c"), milliseconds(5));
  EXPECT_EQ(again.RunTime("b"), milliseconds(4));
  EXPECT_EQ(again.RunTime("a"), CostDefaults().run);
  // The costs come from a file with errors.
  ByKind<double> rates;
  rates.At(0) = -1;
  again.Restore({{"", milliseconds(1), {}}, {"c", milliseconds(-1), {}}}, rates);
  EXPECT_EQ(again.RunTime("c"), milliseconds(5));
  EXPECT_EQ(again.LoadTime(Bytes(1'000'000)), milliseconds(2));
}

}  // namespace
}  // namespace troupe::cost_model_test

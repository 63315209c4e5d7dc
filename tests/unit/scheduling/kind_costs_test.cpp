// What is learned of a model on each kind of GPU, and what stands for a kind on which it is not known yet.
#include <gtest/gtest.h>

#include <limits>

#include "scheduling/cost_model.hpp"

namespace troupe::kind_costs_test {
namespace {

using std::chrono::milliseconds;

constexpr KindId kFast = 0, kSlow = 1, kOther = 2;
const Bytes kMegabyte(1'000'000);

TEST(KindCosts, ARunOnOneKindDoesNotSpoilTheTimeOfAnother) {
  CostModel costs;
  for (int i = 0; i < 20; ++i) {
    costs.ObserveRun("m", milliseconds(10), kFast);
    costs.ObserveRun("m", milliseconds(20), kSlow);
  }
  EXPECT_EQ(costs.RunTime("m", kFast), milliseconds(10));
  EXPECT_EQ(costs.RunTime("m", kSlow), milliseconds(20));
  const CostModel::Id m = costs.Hold("m");
  costs.ObserveCompute(m, milliseconds(8), kSlow);
  costs.NoteCut(m, kSlow);
  EXPECT_EQ(costs.LearnedOf(m, kSlow)->times.runs(), 1u);
  EXPECT_EQ(costs.LearnedOf(m, kSlow)->cuts, 1u);
  EXPECT_EQ(costs.LearnedOf(m, kFast)->times.runs(), 0u);
  EXPECT_EQ(costs.LearnedOf(m, kFast)->cuts, 0u);
  EXPECT_EQ(costs.LearnedOf(m, kOther), nullptr);
}

TEST(KindCosts, TheShortestRunOfAnotherKindStandsForOneThatIsNotKnown) {
  CostModel costs({.run = milliseconds(7)});
  EXPECT_EQ(costs.RunTime("m", kSlow), milliseconds(7)) << "nothing is known";
  costs.ObserveRun("m", milliseconds(20), kSlow);
  EXPECT_EQ(costs.RunTime("m", kFast), milliseconds(20));
  EXPECT_EQ(costs.RunTime("m", kOther), milliseconds(20));
  costs.ObserveRun("m", milliseconds(10), kFast);
  EXPECT_EQ(costs.RunTime("m", kOther), milliseconds(10));
  EXPECT_EQ(costs.RunTime("m", kSlow), milliseconds(20));
  // A run that brought its weights says less than any run that found them.
  costs.ObserveSwapped("m", milliseconds(500), kOther);
  EXPECT_EQ(costs.RunTime("m", kOther), milliseconds(10));
  costs.ObserveSwapped("n", milliseconds(300), kSlow);
  EXPECT_EQ(costs.RunTime("n", kFast), milliseconds(300));
  costs.ObserveSwapped("n", milliseconds(400), kFast);
  EXPECT_EQ(costs.RunTime("n", kFast), milliseconds(400));
}

TEST(KindCosts, ARunOfAnotherKindIsScaledAsTheModelsThatRanOnBoth) {
  CostModel costs;
  costs.ObserveRun("p", milliseconds(40), kSlow);
  EXPECT_EQ(costs.RunTime("p", kFast), milliseconds(40)) << "how the kinds compare is not known";
  costs.ObserveRun("m", milliseconds(10), kFast);
  costs.ObserveRun("m", milliseconds(20), kSlow);
  EXPECT_EQ(costs.RunTime("p", kFast), milliseconds(20));
  costs.ObserveRun("q", milliseconds(7), kFast);
  EXPECT_EQ(costs.RunTime("q", kSlow), milliseconds(14));
  EXPECT_EQ(costs.RunTime("q", kOther), milliseconds(7));
  // Each model that runs on both moves the ratio a little.
  costs.ObserveRun("n", milliseconds(10), kFast);
  costs.ObserveRun("n", milliseconds(40), kSlow);
  EXPECT_NEAR(ToMillis(costs.RunTime("q", kSlow)), 7 * 2.2, 0.01);
}

TEST(KindCosts, AProfileCountsForItsKind) {
  CostModel costs;
  costs.SetProfiled("m", milliseconds(30), kSlow);
  EXPECT_EQ(costs.RunTime("m", kSlow), milliseconds(30));
  EXPECT_EQ(costs.RunTime("m", kFast), milliseconds(30)) << "it stands for the kind that is not known";
  costs.ObserveRun("m", milliseconds(12), kFast);
  costs.ObserveRun("m", milliseconds(99), kSlow);
  EXPECT_EQ(costs.RunTime("m", kFast), milliseconds(12));
  EXPECT_EQ(costs.RunTime("m", kSlow), milliseconds(30));
  costs.SetProfiled("m", {}, kSlow);
  EXPECT_EQ(costs.RunTime("m", kSlow), milliseconds(99));
}

TEST(KindCosts, WhetherAModelIsHeavyIsAMatterOfTheKindAndItsLink) {
  CostModel costs({.link = {1e9}});
  const CostModel::Id m = costs.Hold("m");
  costs.ObserveRun(m, milliseconds(10), kFast);
  costs.ObserveRun(m, milliseconds(40), kSlow);
  EXPECT_TRUE(costs.Heavy(m, kMegabyte * 20, kFast));
  EXPECT_FALSE(costs.Heavy(m, kMegabyte * 20, kSlow)) << "the run hides the load";
  EXPECT_EQ(costs.SwapDelay(m, kMegabyte * 20, kFast), milliseconds(10));
  EXPECT_EQ(costs.SwapDelay(m, kMegabyte * 20, kSlow), Duration());
  costs.ObserveLoad(kMegabyte, milliseconds(4), kSlow);
  EXPECT_TRUE(costs.Heavy(m, kMegabyte * 20, kSlow));
  EXPECT_EQ(costs.CostsOf(m, kMegabyte * 20, kSlow).load, milliseconds(80));
  EXPECT_EQ(costs.CostsOf(m, kMegabyte * 20, kSlow).run, milliseconds(40));
  // A kind on which the model never ran has what is known of another one, and its own link.
  costs.ObserveSwapped(m, milliseconds(11), kFast);
  costs.ObserveLoad(kMegabyte, milliseconds(1), kOther);
  EXPECT_FALSE(costs.Heavy(m, kMegabyte * 20, kOther));
}

TEST(KindCosts, TheFastestLinkStandsForOneThatWasNotSeen) {
  CostModel costs({.link = {1e9}});
  EXPECT_EQ(costs.LoadTime(kMegabyte, kSlow), milliseconds(1));
  costs.ObserveLoad(kMegabyte, milliseconds(3), kSlow);
  EXPECT_EQ(costs.LoadTime(kMegabyte, kFast), milliseconds(3));
  costs.ObserveLoad(kMegabyte, milliseconds(2), kFast);
  EXPECT_EQ(costs.LoadTime(kMegabyte, kFast), milliseconds(2));
  EXPECT_EQ(costs.LoadTime(kMegabyte, kSlow), milliseconds(3));
  EXPECT_EQ(costs.LoadTime(kMegabyte, kOther), milliseconds(2));
}

TEST(KindCosts, AreKeptAndRestoredByKind) {
  CostModel costs;
  costs.ObserveRun("a", milliseconds(20), kSlow);
  costs.ObserveRun("b", milliseconds(10), kFast);
  costs.ObserveRun("b", milliseconds(21), kSlow);
  costs.ObserveLoad(kMegabyte, milliseconds(3), kSlow);
  const auto known = costs.Known();
  ASSERT_EQ(known.size(), 3u) << "of a, nothing is known on the fast kind";
  EXPECT_EQ(known[0].kind, kSlow);
  EXPECT_EQ(known[1].kind, kFast);
  CostModel again;
  again.Restore(known, costs.nanos_per_byte());
  EXPECT_EQ(again.RunTime("b", kFast), milliseconds(10));
  EXPECT_EQ(again.RunTime("b", kSlow), milliseconds(21));
  EXPECT_EQ(again.LoadTime(kMegabyte, kSlow), milliseconds(3));
  ByKind<double> rates;
  rates.At(kSlow) = std::numeric_limits<double>::infinity();
  again.Restore({{.model = "b", .run = milliseconds(-3), .kind = kSlow}}, rates);
  EXPECT_EQ(again.RunTime("b", kSlow), milliseconds(21));
  EXPECT_EQ(again.LoadTime(kMegabyte, kSlow), milliseconds(3));
}

TEST(KindCosts, AModelThatWasForgottenKeepsWhatItsProfilesSay) {
  CostModel costs({.run = milliseconds(7), .max_models = 1});
  costs.SetProfiled("a", milliseconds(30), kSlow);
  const CostModel::Id a = costs.Hold("a");
  costs.ObserveRun(a, milliseconds(10), kFast);
  costs.ObserveRun("b", milliseconds(1), kFast);
  EXPECT_EQ(costs.LearnedOf(a, kFast)->run.known(), false);
  EXPECT_EQ(costs.RunTime(a, kSlow), milliseconds(30));
  EXPECT_EQ(costs.RunTime(a, kFast), milliseconds(10)) << "by the profile, and by how the kinds compare";
}

}  // namespace
}  // namespace troupe::kind_costs_test

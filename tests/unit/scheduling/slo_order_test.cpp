#include "scheduling/slo_order.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace troupe::slo_order_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

void End(SloOrder<std::string>& order, const std::string& function, int in_time, int late,
         Duration latency = milliseconds(10), double percentile = 0) {
  for (int i = 0; i < in_time; ++i) order.Ended(function, percentile, true, latency);
  for (int i = 0; i < late; ++i) order.Ended(function, percentile, false, latency);
}
std::vector<std::string> Sorted(const SloOrder<std::string>& order, std::vector<std::string> functions) {
  std::stable_sort(functions.begin(), functions.end(),
                   [&](const auto& a, const auto& b) { return order.PlaceOf(a) < order.PlaceOf(b); });
  return functions;
}
// `periods` whole alpha periods: in each of them `functions` runs end, `met` of them within their SLO.
Time Periods(SloOrder<std::string>& order, Time now, int functions, int met) {
  for (int i = 0; i < functions; ++i) End(order, "f" + std::to_string(i), i < met ? 1 : 0, i < met ? 0 : 1);
  for (std::uint32_t i = 0; i < order.rules().reorders_per_alpha; ++i) {
    EXPECT_TRUE(order.Reorder(now));
    now += order.rules().reorder_every;
  }
  return now;
}

// The required requests on which the place of a function is based, as of the last Reorder.
double Required(const SloOrder<std::string>& order, const std::string& function) {
  const FunctionPlace place = order.PlaceOf(function);
  return static_cast<double>(place.group == 0 ? -place.score : place.score) / 1e6;
}

TEST(SloOrder, RequiredRequestsAsInThePaper) {
  SloOrder<std::string> order(kPaperSloRules);
  End(order, "a", 97, 3);  // (0.98 x 100 - 97) / 0.02
  End(order, "b", 100, 0);
  End(order, "c", 1, 1, milliseconds(10), 50);
  End(order, "d", 0, 1, milliseconds(10), 100);  // d cannot meet its SLO any more
  ASSERT_TRUE(order.Reorder(Time{}));
  EXPECT_EQ(Required(order, "none"), 0);
  EXPECT_NEAR(Required(order, "a"), 50, 1e-6);
  EXPECT_NEAR(Required(order, "b"), -100, 1e-6);
  EXPECT_NEAR(Required(order, "c"), 0, 1e-6);
  EXPECT_NEAR(Required(order, "d"), 9999, 1);
  // The released router weighs with the mean latency in seconds.
  SloOrder<std::string> released(kReleasedSloRules);
  End(released, "a", 97, 3, milliseconds(100));
  ASSERT_TRUE(released.Reorder(Time{}));
  EXPECT_NEAR(Required(released, "a"), 5, 1e-5);
}

TEST(SloOrder, HighGroupDescendsLowGroupAscends) {
  SloOrder<std::string> order(kPaperSloRules);
  End(order, "good", 100, 0);  // -100
  End(order, "near", 97, 3);   // 50
  End(order, "far", 90, 10);   // 400
  End(order, "lost", 0, 40);   // 1960
  const std::vector<std::string> all = {"good", "near", "far", "lost", "new"};
  Time now{};
  // With alpha 1 all functions are in the high group.
  ASSERT_TRUE(order.Reorder(now));
  EXPECT_FALSE(order.Reorder(now + milliseconds(1999)));
  EXPECT_THAT(Sorted(order, all), ElementsAre("lost", "far", "near", "new", "good"));
  // The share of functions within their SLO falls, so alpha is halved, and 50 + 400 <= 1205 < 50 + 400 +
  // 1960.
  now = Time(seconds(2));
  for (int i = 0; i < 18; ++i, now += seconds(2)) ASSERT_TRUE(order.Reorder(now));
  EXPECT_EQ(order.alpha(), 1);
  ASSERT_TRUE(order.Reorder(now));  // the first period: one of four
  EXPECT_EQ(order.alpha(), 1);
  End(order, "near", 0, 1);  // near misses its SLO once more
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(order.Reorder(now += seconds(2)));
  EXPECT_EQ(order.alpha(), 0.5);
  EXPECT_THAT(Sorted(order, all), ElementsAre("far", "near", "new", "good", "lost"));
  EXPECT_EQ(order.PlaceOf("far").group, 0u);
  EXPECT_EQ(order.PlaceOf("lost").group, 1u);
}

TEST(SloOrder, AlphaFollowsTheAbsoluteChangeInThePaper) {
  SloOrder<std::string> order(kPaperSloRules);
  Time now = Periods(order, Time{}, 100, 90);
  EXPECT_EQ(order.alpha(), 1);  // there is no earlier period to compare with
  now = Periods(order, now, 100, 80);
  EXPECT_EQ(order.alpha(), 0.5);
  now = Periods(order, now, 100, 77);  // within the threshold
  EXPECT_EQ(order.alpha(), 0.5);
  now = Periods(order, now, 100, 74);  // compared with 77, the period before, not with 80
  EXPECT_EQ(order.alpha(), 0.5);
  now = Periods(order, now, 100, 60);
  EXPECT_EQ(order.alpha(), 0.25);
  now = Periods(order, now, 100, 65);
  EXPECT_EQ(order.alpha(), 0.5);
  now = Periods(order, now, 100, 70);
  now = Periods(order, now, 100, 75);
  EXPECT_EQ(order.alpha(), 1);  // alpha never rises above 1
  Periods(order, now, 0, 0);    // a period without requests
  EXPECT_EQ(order.alpha(), 1);
}

TEST(SloOrder, AlphaAsInTheReleasedRouter) {
  SloRules rules = kReleasedSloRules;
  rules.share_of_period = true;  // so that the test sets the shares itself
  SloOrder<std::string> order(rules);
  Time now = Periods(order, Time{}, 100, 10);
  EXPECT_EQ(order.alpha(), 1);
  now = Periods(order, now, 100, 9);  // a tenth less, since the change is relative
  EXPECT_EQ(order.alpha(), 0.5);
  now = Periods(order, now, 100, 9);
  EXPECT_NEAR(order.alpha(), 0.505, 1e-9);
  now = Periods(order, now, 200, 19);  // 9.5 % after 9 %
  EXPECT_EQ(order.alpha(), 1);
}

TEST(SloOrder, AHundredThousandRequestsDoNotDrownTheNext) {
  SloOrder<std::string> order(kPaperSloRules);
  End(order, "a", 400'000, 0);
  ASSERT_TRUE(order.Reorder(Time{}));
  EXPECT_GE(Required(order, "a"), -100'001);
  EXPECT_LT(Required(order, "a"), 0);
  for (int i = 0; i < 16'500; ++i) order.Ended("g" + std::to_string(i), 98, true, {});
  EXPECT_EQ(Required(order, "a"), 0);  // a is forgotten, since it was idle longest
}

}  // namespace
}  // namespace troupe::slo_order_test

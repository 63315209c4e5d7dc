// Windows of time: what a function may use of each, and what it owes to those that follow.
#include "gpu/sharing/quota_window.hpp"

#include <random>

#include "gtest/gtest.h"
#include "tests/unit/gpu_sharing/at.hpp"

namespace troupe::gpu {
namespace {

using std::chrono::milliseconds;
using test::At;

constexpr Duration kSecond = std::chrono::seconds(1);

TEST(QuotaWindow, AFunctionHasItsLimitOfEachWindow) {
  QuotaWindow window(kSecond);
  window.Set("f", {.request = 20, .limit = 40}, At(0));
  EXPECT_TRUE(window.HasTime("f", At(0)));
  EXPECT_EQ(window.Missing("f", At(0)), milliseconds(200));
  window.Charge("f", milliseconds(399), At(0.5));
  EXPECT_TRUE(window.HasTime("f", At(0.5)));
  EXPECT_EQ(window.Missing("f", At(0.5)), milliseconds(-199));
  window.Charge("f", milliseconds(1), At(0.6));
  EXPECT_FALSE(window.HasTime("f", At(0.999)));
  EXPECT_EQ(window.Next(At(0.999)), At(1));
  EXPECT_TRUE(window.HasTime("f", At(1)));
  EXPECT_EQ(window.Missing("f", At(1)), milliseconds(200));
}

TEST(QuotaWindow, WhatGoesBeyondTheLimitIsChargedToTheWindowsThatFollow) {
  QuotaWindow window(kSecond);
  window.Set("f", {.limit = 40}, At(0));
  window.Charge("f", milliseconds(950), At(0.9));
  EXPECT_FALSE(window.HasTime("f", At(1.5))) << "550 ms are owed to a window that has 400";
  EXPECT_TRUE(window.HasTime("f", At(2)));
  EXPECT_EQ(window.Used("f", At(2)), milliseconds(150));
  EXPECT_EQ(window.Used("f", At(3)), Duration(0));
  EXPECT_EQ(window.Used("f", At(50)), Duration(0));
}

TEST(QuotaWindow, ASmallerLimitUsesTheWindowUpAndOwesNothing) {
  QuotaWindow window(kSecond);
  window.Set("f", {.limit = 100, .instances = 8}, At(0));
  window.Charge("f", milliseconds(7900), At(0.9));
  window.Set("f", {.limit = 2}, At(0.95));
  EXPECT_FALSE(window.HasTime("f", At(0.96))) << "it has had more than its part of this window";
  EXPECT_TRUE(window.HasTime("f", At(1)));
  EXPECT_EQ(window.Used("f", At(1)), Duration(0));
}

TEST(QuotaWindow, WhatWentBeyondTheLimitIsOwedByASmallerOneToo) {
  QuotaWindow window(kSecond);
  window.Set("f", {.limit = 40}, At(0));
  window.Charge("f", milliseconds(500), At(0.9));
  window.Set("f", {.limit = 20}, At(0.95));
  EXPECT_EQ(window.Used("f", At(0.95)), milliseconds(300))
      << "the window, and the 100 ms beyond the limit before";
  EXPECT_EQ(window.Used("f", At(1)), milliseconds(100));
}

TEST(QuotaWindow, WithoutALimitNothingIsOwed) {
  QuotaWindow window(kSecond);
  window.Set("f", {.request = 10}, At(0));
  window.Charge("f", milliseconds(5000), At(0.9));
  EXPECT_TRUE(window.HasTime("f", At(0.9)));
  EXPECT_EQ(window.Used("f", At(1)), Duration(0));
}

TEST(QuotaWindow, AClockThatStandsStillOrJumpsNeitherEndsNorStretchesAWindow) {
  QuotaWindow window(kSecond);
  window.Set("f", {.request = 20, .limit = 40}, At(5.5));
  window.Charge("f", milliseconds(400), At(5.5));
  for (int look = 0; look < 3; ++look) EXPECT_FALSE(window.HasTime("f", At(5.5))) << "the clock stands still";
  // A clock that went back, in the window and out of it, gives no time anew.
  EXPECT_FALSE(window.HasTime("f", At(5.1)));
  EXPECT_FALSE(window.HasTime("f", At(3)));
  window.Charge("f", milliseconds(100), At(3));
  EXPECT_EQ(window.Used("f", At(5.9)), milliseconds(500));
  // One that ran an hour ahead gives one window's time and not that of an hour.
  EXPECT_EQ(window.Used("f", At(3600)), Duration(0));
  window.Charge("f", milliseconds(400), At(3600.2));
  EXPECT_FALSE(window.HasTime("f", At(3600.9)));
  EXPECT_EQ(window.Next(At(3600.9)), At(3601));
}

TEST(QuotaWindow, InstancesHaveTheQuotaEach) {
  QuotaWindow window(kSecond);
  window.Set("f", {.request = 10, .limit = 20, .instances = 4}, At(0));
  EXPECT_EQ(window.Missing("f", At(0)), milliseconds(400));
  window.Charge("f", milliseconds(799), At(0.5));
  EXPECT_TRUE(window.HasTime("f", At(0.5)));
  window.Charge("f", milliseconds(1), At(0.5));
  EXPECT_FALSE(window.HasTime("f", At(0.5)));
}

TEST(QuotaWindow, AChangedQuotaHoldsAtOnceAndKeepsWhatWasUsed) {
  QuotaWindow window(kSecond);
  window.Set("f", {.limit = 20}, At(0));
  window.Charge("f", milliseconds(200), At(0.1));
  EXPECT_FALSE(window.HasTime("f", At(0.1)));
  window.Set("f", {.limit = 50}, At(0.2));
  EXPECT_TRUE(window.HasTime("f", At(0.2)));
  window.Charge("f", milliseconds(300), At(0.5));
  EXPECT_FALSE(window.HasTime("f", At(0.5)));
}

TEST(QuotaWindow, AFunctionThatLeavesAndComesBackBeginsNoNewWindow) {
  QuotaWindow window(kSecond);
  window.Set("f", {.limit = 20}, At(0));
  window.Charge("f", milliseconds(200), At(0.1));
  window.Forget("f", At(0.2));
  window.Set("f", {.limit = 20}, At(0.3));
  EXPECT_FALSE(window.HasTime("f", At(0.3)));
  window.Forget("f", At(0.4));
  EXPECT_EQ(window.functions(), 1u);
  window.Set("g", {.limit = 20}, At(1.1));
  window.Forget("g", At(1.1));
  EXPECT_EQ(window.functions(), 0u) << "nothing is owed any more";
}

// However runs of any length come, over many windows no function gets more than its limit, but for the run that
// was under way at the end of the last.
TEST(QuotaWindowProperty, OverManyWindowsNoFunctionHasMoreThanItsLimit) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const auto percent = static_cast<std::uint32_t>(random() % 100 + 1);
    QuotaWindow window(kSecond);
    window.Set("f", {.limit = percent}, At(0));
    const Duration longest = milliseconds(random() % 1500 + 1);
    Time now = At(0);
    Duration used{};
    const Time end = At(40);
    while (now < end) {
      if (!window.HasTime("f", now)) {
        now = window.Next(now);
        continue;
      }
      const Duration run = Duration(random() % longest.count() + 1);
      now += run;
      window.Charge("f", run, now);
      used += run;
    }
    EXPECT_LE(ToSeconds(used), 40.0 * percent / 100 + ToSeconds(longest) + percent / 100.0)
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace troupe::gpu

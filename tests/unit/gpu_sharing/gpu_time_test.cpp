// What runs that compute at the same time had of their GPU.
#include "gpu/sharing/gpu_time.hpp"

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/gpu_sharing/at.hpp"

namespace troupe::gpu {
namespace {

using std::chrono::milliseconds;
using test::At;
using Part = GpuTime::Part;

TEST(GpuTime, ARunThatIsAloneHadAllOfIt) {
  GpuTime time;
  Part run;
  time.Begin(run, At(1));
  time.End(run, At(3));
  EXPECT_EQ(run.Of(milliseconds(1990)), milliseconds(1990));
}

TEST(GpuTime, TwoRunsHadHalfOfItWhileBothComputed) {
  GpuTime time;
  Part first;
  Part second;
  time.Begin(first, At(0));
  time.Begin(second, At(1));
  time.End(first, At(3));   // one second alone, two beside the second
  time.End(second, At(4));  // two beside the first, one alone
  EXPECT_EQ(first.Of(milliseconds(3000)), milliseconds(2000));
  EXPECT_EQ(second.Of(milliseconds(3000)), milliseconds(2000));
}

TEST(GpuTime, WhatTheDevicesClockSaysIsDividedInTheSameProportion) {
  GpuTime time;
  Part first;
  Part second;
  time.Begin(first, At(0));
  time.Begin(second, At(0));
  time.End(second, At(2));
  time.End(first, At(2));
  EXPECT_EQ(first.Of(milliseconds(1900)), milliseconds(950));
}

TEST(GpuTime, ARunThatPausesLeavesItToOthers) {
  GpuTime time;
  Part first;
  Part second;
  time.Begin(first, At(0));
  time.Begin(second, At(0));
  time.End(first, At(1));
  time.Begin(first, At(2));
  time.End(second, At(2));
  time.End(first, At(3));
  EXPECT_EQ(second.Of(milliseconds(2000)), milliseconds(1500));
  EXPECT_EQ(first.Of(milliseconds(2000)), milliseconds(1500))
      << "half a second beside the other, and one alone";
}

TEST(GpuTime, RunsOfOtherWorkersHaveTheirPart) {
  GpuTime time;
  Part run;
  time.SetOthers(1, At(0));
  time.Begin(run, At(0));
  time.SetOthers(0, At(2));
  time.End(run, At(3));
  EXPECT_EQ(run.Of(milliseconds(3000)), milliseconds(2000));
}

TEST(GpuTime, ARunThatNeverComputedOrEndsTwiceTakesNothingFromOthers) {
  GpuTime time;
  Part never;
  Part run;
  time.Begin(run, At(0));
  time.End(never, At(1));
  time.End(run, At(2));
  time.End(run, At(3));
  EXPECT_EQ(run.Of(milliseconds(2000)), milliseconds(2000));
  EXPECT_EQ(never.Of(milliseconds(7)), milliseconds(7)) << "nothing is known of it";
}

TEST(GpuTimeProperty, AllPartsAddUpToTheTimeInWhichSomeRunComputed) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 draw(seed);
    GpuTime time;
    std::vector<Part> parts(1 + draw() % 8);
    std::vector<Duration> computed(parts.size());
    std::vector<bool> computes(parts.size());
    Duration busy{};
    Time now = At(0);
    for (int step = 0; step < 200; ++step) {
      const Duration passed = milliseconds(draw() % 50);
      now += passed;
      bool some = false;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (!computes[i]) continue;
        computed[i] += passed;
        some = true;
      }
      if (some) busy += passed;
      const std::size_t i = draw() % parts.size();
      computes[i] ? time.End(parts[i], now) : time.Begin(parts[i], now);
      computes[i] = !computes[i];
    }
    Duration sum{};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      time.End(parts[i], now);
      sum += parts[i].Of(computed[i]);
    }
    EXPECT_NEAR(ToSeconds(sum), ToSeconds(busy), 1e-4) << "seed " << seed;
  }
}

}  // namespace
}  // namespace troupe::gpu

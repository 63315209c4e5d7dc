#include "base/run_cost.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using std::chrono::milliseconds;

// No faster with more than the 32 of 132 SMs that 24 % of them come to.
constexpr RunCost kCost{.time = milliseconds(20), .saturation = 32.0 / 132};

TEST(RunCost, TakesLongerOnFewerSmsThanItCanUse) {
  EXPECT_EQ(kCost.On(1.0), milliseconds(20));
  EXPECT_EQ(kCost.On(32.0 / 132), milliseconds(20));
  EXPECT_NEAR(ToMillis(kCost.On(8.0 / 132)), 80, 1e-6);
  EXPECT_DOUBLE_EQ(kCost.SlownessOn(8.0 / 132), 4);
  EXPECT_DOUBLE_EQ(kCost.SlownessOn(0.5), 1);
}

TEST(RunCost, AShareIsAPartOfTheSms) {
  const ShareLadder ladder(132, 8, 16);
  EXPECT_NEAR(ToMillis(kCost.On(ladder.For(6))), 80, 1e-6);
  EXPECT_EQ(kCost.On(ladder.For(100)), milliseconds(20));
  EXPECT_EQ(kCost.On(SmShare{}), milliseconds(20));  // of no SMs: beside others, on the whole GPU
}

TEST(RunCost, ARunUsesNoMoreSmsThanItsSaturation) {
  EXPECT_DOUBLE_EQ(kCost.UsedOf(8.0 / 132), 8.0 / 132);
  EXPECT_DOUBLE_EQ(kCost.UsedOf(1), 32.0 / 132);
}

}  // namespace
}  // namespace troupe

#include "base/random.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(Random, SameSeedSameSequence) {
  Random a(7), b(7), c(8);
  EXPECT_EQ(a(), b());
  EXPECT_NE(a(), c());
}

TEST(Random, FirstDrawIsThePublishedSplitMix64) {
  Random zero(0);
  EXPECT_EQ(zero(), 0xe220a8397b1dcdafULL);
}

TEST(Random, BelowStaysInRangeAndReachesBothEnds) {
  Random random(1);
  bool low = false, high = false;
  for (int i = 0; i < 1000; ++i) {
    const auto draw = random.Below(6);
    ASSERT_LT(draw, 6u);
    low |= draw == 0;
    high |= draw == 5;
  }
  EXPECT_TRUE(low && high);
}

TEST(Random, ExponentialHasItsMean) {
  Random random(3);
  double sum = 0;
  for (int i = 0; i < 100000; ++i) sum += random.Exponential(2.0);
  EXPECT_NEAR(sum / 100000, 2.0, 0.05);
}

}  // namespace
}  // namespace troupe

#include "gpu/worker/launch_order.hpp"

#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

using std::chrono::milliseconds;

Urgency By(int ms) {
  return milliseconds(ms) / Duration(1);
}
const Time kNow(milliseconds(5'000));

TEST(LaunchTurn, WhatIsLateYieldsForAWhile) {
  EXPECT_FALSE(Yields(By(5'000), kNow));
  EXPECT_TRUE(Yields(By(4'999), kNow));
  EXPECT_TRUE(Yields(By(4'000), kNow));
  EXPECT_FALSE(Yields(By(3'999), kNow));
  EXPECT_LT(TurnAt(By(3'999), kNow), TurnAt(By(5'000), kNow));
  EXPECT_LT(TurnAt(By(5'000), kNow), TurnAt(By(6'000), kNow));
  EXPECT_LT(TurnAt(By(6'000), kNow), TurnAt(By(4'500), kNow));
  EXPECT_LT(TurnAt(By(4'500), kNow), TurnAt(By(4'999), kNow));
}

// A run of 40 ms that has until 5.2 s to begin, and stands before one of 20 ms whose weights come within 10
// ms and that has to begin at 5.03 s.
class LaunchOrder : public testing::Test {
 protected:
  Launchable here_{.urgency = By(5'200), .takes = milliseconds(40), .weights = Time()};
  Launchable coming_{.urgency = By(5'030), .takes = milliseconds(20), .weights = kNow + milliseconds(10)};
};
TEST_F(LaunchOrder, WhatWouldBeMadeLateGoesFirst) {
  EXPECT_TRUE(GoesBefore(coming_, here_, kNow));
}
TEST_F(LaunchOrder, WhatIsInTimeBehindTheOtherOneStaysBehind) {
  coming_.urgency = By(5'040);
  EXPECT_FALSE(GoesBefore(coming_, here_, kNow));
}
TEST_F(LaunchOrder, WhatIsLateAlreadyStaysBehind) {
  coming_.urgency = By(4'999);
  EXPECT_FALSE(GoesBefore(coming_, here_, kNow));
}
TEST_F(LaunchOrder, WhatIsLessUrgentStaysBehind) {
  coming_.urgency = By(5'201);
  here_.takes = milliseconds(500);
  EXPECT_FALSE(GoesBefore(coming_, here_, kNow));
}
TEST_F(LaunchOrder, WhatWouldMakeTheOtherOneLateStaysBehind) {
  here_.urgency = By(5'035);
  EXPECT_TRUE(GoesBefore(coming_, here_, kNow));
  coming_.takes = milliseconds(36);
  EXPECT_FALSE(GoesBefore(coming_, here_, kNow));
  coming_.takes = milliseconds(20);
  coming_.weights = kNow + milliseconds(36);
  EXPECT_FALSE(GoesBefore(coming_, here_, kNow));
  coming_.weights = Time::max();
  EXPECT_FALSE(GoesBefore(coming_, here_, kNow));
}
TEST_F(LaunchOrder, NothingIsSaidOfWhatHasNotRunYet) {
  here_.takes = {};
  EXPECT_FALSE(GoesBefore(coming_, here_, kNow));
}
TEST_F(LaunchOrder, UrgenciesThatAreNoTimesChangeNothing) {
  here_.urgency = 0;
  coming_.urgency = 0;
  EXPECT_FALSE(GoesBefore(coming_, here_, kNow));
  here_.urgency = By(4'900);  // the urgency of arrivals
  coming_.urgency = By(4'800);
  EXPECT_FALSE(GoesBefore(coming_, here_, kNow));
}

}  // namespace
}  // namespace troupe::gpu

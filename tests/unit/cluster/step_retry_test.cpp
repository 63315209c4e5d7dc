// Which failures are temporary, and how long a call waits before it is made again.
#include "cluster/step_retry.hpp"

#include <gtest/gtest.h>

#include <set>

namespace troupe::cluster {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(StepRetry, OnlyThreeCodesPassAndATimeoutReopensARun) {
  using Code = absl::StatusCode;
  for (int i = -1; i <= 17; ++i) {
    const auto code = static_cast<Code>(i);
    const bool passing =
        code == Code::kUnavailable || code == Code::kResourceExhausted || code == Code::kAborted;
    EXPECT_EQ(IsPassing(code), passing) << i;
    EXPECT_EQ(MayReopen(code), passing || code == Code::kDeadlineExceeded) << i;
  }
}

TEST(StepRetry, PausesDoubleUpToTheLongestWithARandomHalfLeftOut) {
  const RetryLimits limits{.first = milliseconds(10), .longest = milliseconds(100)};
  Random random(7);
  for (const auto& [failures, full] :
       {std::pair{1U, 10}, {2U, 20}, {3U, 40}, {4U, 80}, {5U, 100}, {6U, 100}, {4000000000U, 100}}) {
    std::set<Duration> seen;
    for (int i = 0; i < 100; ++i) {
      const auto pause = RetryPause(limits, failures, {}, random);
      EXPECT_GT(pause, milliseconds(full) / 2) << failures;
      EXPECT_LE(pause, milliseconds(full)) << failures;
      seen.insert(pause);
    }
    EXPECT_GT(seen.size(), 90u) << "calls that failed together do not come back together";
  }
}

TEST(StepRetry, ARefusalThatNamesAPauseIsHonoured) {
  Random random(7);
  EXPECT_EQ(RetryPause({}, 1, seconds(3), random), seconds(3));
  EXPECT_EQ(RetryPause({}, 1, hours(9), random), hours(9))
      << "the timeout of the run ends it; the pause is not shortened";
  EXPECT_GT(RetryPause({}, 1, seconds(-3), random), Duration());
}

TEST(StepRetry, TheSameSeedGivesTheSamePauses) {
  Random one(3), two(3);
  for (std::uint32_t i = 1; i < 20; ++i) EXPECT_EQ(RetryPause({}, i, {}, one), RetryPause({}, i, {}, two));
}

}  // namespace
}  // namespace troupe::cluster

#include "base/alarm.hpp"

#include <gtest/gtest.h>

#include <map>

namespace troupe {
namespace {

using std::chrono::seconds;

Time At(int s) {
  return Time(seconds(s));
}

TEST(Alarm, SetsATimerOnlyWhereNoneGoesOffByThen) {
  Alarm alarm;
  EXPECT_FALSE(alarm.Set(Time::max()));
  EXPECT_TRUE(alarm.Set(At(30)));
  EXPECT_FALSE(alarm.Set(At(30)));
  EXPECT_FALSE(alarm.Set(At(40)));
  EXPECT_TRUE(alarm.Set(At(10)));
  EXPECT_EQ(alarm.timers(), 2u);
  alarm.WentOff(At(10));
  EXPECT_FALSE(alarm.Set(At(31))) << "the timer of second 30 runs still";
  alarm.WentOff(At(30));
  EXPECT_TRUE(alarm.Set(At(31)));
}

// Something far is always due, and something near comes and goes.
TEST(Alarm, TimersDoNotAddUp) {
  Alarm alarm;
  std::multimap<Time, int> timers;
  const auto set = [&](Time due) {
    if (alarm.Set(due)) timers.emplace(due, 0);
  };
  for (int second = 0; second < 10'000; ++second) {
    set(At(second + 30));
    set(At(second + 1));
    while (!timers.empty() && timers.begin()->first <= At(second)) {
      timers.erase(timers.begin());
      alarm.WentOff(At(second));
      set(At(second + 30));
    }
    ASSERT_LE(timers.size(), 3u) << second;
  }
}

}  // namespace
}  // namespace troupe

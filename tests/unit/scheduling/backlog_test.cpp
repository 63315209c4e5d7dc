#include "scheduling/backlog.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using std::chrono::milliseconds;

Time At(int ms) {
  return Time(milliseconds(ms));
}

TEST(Backlog, IsWhatIsLeftOfTheWork) {
  Backlog backlog;
  EXPECT_EQ(backlog.Left(At(0)), Duration());
  backlog.Add(milliseconds(10), At(0));
  backlog.Add(milliseconds(30), At(5));
  EXPECT_EQ(backlog.Left(At(5)), milliseconds(35));
  EXPECT_EQ(backlog.whole(), milliseconds(40));
  backlog.Done(milliseconds(10), At(12));
  EXPECT_EQ(backlog.Left(At(12)), milliseconds(30));
  EXPECT_EQ(backlog.Left(At(20)), milliseconds(22));
  backlog.Done(milliseconds(30), At(40));
  EXPECT_EQ(backlog.Left(At(40)), Duration());
  EXPECT_EQ(backlog.pieces(), 0u);
}

TEST(Backlog, APieceThatTakesLongerThanItWasThoughtEatsNothingOfTheOthers) {
  Backlog backlog;
  backlog.Add(milliseconds(10), At(0));
  backlog.Add(milliseconds(10), At(0));
  EXPECT_EQ(backlog.Left(At(500)), milliseconds(10));
}

// A GPU that is never idle, and whose runs take half of the time that was estimated.
TEST(Backlog, WrongEstimatesDoNotAddUp) {
  Backlog backlog;
  backlog.Add(milliseconds(20), At(0));
  for (int run = 1; run <= 1000; ++run) {
    backlog.Add(milliseconds(20), At(10 * run));
    backlog.Done(milliseconds(20), At(10 * run));
    ASSERT_EQ(backlog.Left(At(10 * run)), milliseconds(20));
  }
}

}  // namespace
}  // namespace troupe

#include "scheduling/late_queue.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace troupe::late_queue_test {
namespace {

using std::chrono::milliseconds;

Time At(int ms) {
  return Time(milliseconds(ms));
}

OrderingKey Key(int deadline, std::uint64_t sequence) {
  return MakeOrderingKey(*FindOrderingPolicy("edf-late-last"), {.deadline = At(deadline)}, sequence);
}

TEST(LateQueue, ALateKeyIsBehindAllOfItsPriorityAndNoOther) {
  EXPECT_LT(Key(500, 2), LateKey(Key(10, 1)));
  EXPECT_LT(LateKey(Key(10, 1)), LateKey(Key(20, 1)));
  EXPECT_TRUE(IsLate(LateKey(Key(10, 1))));
  EXPECT_FALSE(IsLate(Key(10, 1)));
  OrderingKey unimportant = Key(10, 1);
  unimportant.priority = kDefaultPriority + 1;
  EXPECT_LT(LateKey(Key(10, 1)), unimportant);
}

TEST(LateQueue, ItIsLateWhenAnotherRunBeforeItWouldBeTooMuch) {
  EXPECT_EQ(LatestBegin(At(100), milliseconds(20), At(0)), At(60));
  // The request has half of the time that it has to spare at its arrival, if that is less.
  EXPECT_EQ(LatestBegin(At(50), milliseconds(30), At(0)), At(10));
  EXPECT_EQ(LatestBegin(At(50), milliseconds(60), At(0)), At(-10));
  EXPECT_EQ(LatestBegin(Time::max(), milliseconds(20), At(0)), Time::max());
}

TEST(LateQueue, ARequestIsLateOnceItCouldNotEndInTime) {
  LateQueue<int, std::string> line(LateRules{});
  line.Add(Key(50, 1), At(30), 1);
  line.Add(Key(40, 2), At(20), 2);
  line.Add(Key(90, 3), Time::max(), 3);  // a request without a deadline
  EXPECT_FALSE(line.NextLate(At(20)));   // the request still ends in time when it begins now
  EXPECT_EQ(line.NextLate(At(25)), 2);
  line.Remove(Key(40, 2), At(20));
  EXPECT_FALSE(line.NextLate(At(25)));
  EXPECT_EQ(line.NextLate(At(1000)), 1);
  EXPECT_EQ(line.late(), 0u);
}

// However many requests arrive in time, one of every `turn` requests that go is a late one.
TEST(LateQueue, LateOnesHaveTheirTurns) {
  LateQueue<int, std::string> line(LateRules{.turn = 4});
  const OrderingKey first = LateKey(Key(5, 1));
  const OrderingKey second = LateKey(Key(7, 2));
  line.Add(second, At(0), 2);
  line.Add(first, At(0), 1);
  std::vector<int> turns;
  for (int gone = 1; gone <= 9; ++gone) {
    const auto turn = line.Gone(Key(100 + gone, 10 + static_cast<std::uint64_t>(gone)));
    if (!turn) continue;
    turns.push_back(gone * 10 + *turn);
    line.Remove(*turn == 1 ? first : second, At(0));
  }
  EXPECT_EQ(turns, (std::vector<int>{41, 82}));
  EXPECT_EQ(line.late(), 0u);
}

TEST(LateQueue, ALateRequestThatGoesByItselfCountsForNoTurn) {
  LateQueue<int, std::string> line(LateRules{.turn = 2});
  line.Add(LateKey(Key(5, 1)), At(0), 1);
  EXPECT_FALSE(line.Gone(Key(100, 10)));
  EXPECT_FALSE(line.Gone(LateKey(Key(4, 2))));
  EXPECT_EQ(line.Gone(Key(100, 11)), 1);
}

void Spend(LateQueue<int, std::string>& line, const std::string& function) {
  for (int i = 0; i < 20; ++i) line.Ended(function, 98, false);
}

TEST(LateQueue, AFunctionThatWillNotMeetItsSloYields) {
  LateQueue<int, std::string> line(LateRules{.budgets = true});
  Spend(line, "lost");
  EXPECT_TRUE(line.Yields("lost"));
  EXPECT_FALSE(line.Yields("other"));
}

TEST(LateQueue, WithoutBudgetsNoFunctionYieldsForAnother) {
  LateQueue<int, std::string> line(LateRules{});
  Spend(line, "lost");
  EXPECT_FALSE(line.Yields("lost"));
}

}  // namespace
}  // namespace troupe::late_queue_test

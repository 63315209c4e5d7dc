#include "node/models/range_waits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace troupe::node {
namespace {

using Answer = RangeWaits::Answer;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr RangeWaits::Limits kMost = {.most = 3, .most_of_one = 3};

TEST(RangeWaits, AnObjectThatIsNotFetchedIsAbsent) {
  RangeWaits waits(kMost);
  EXPECT_EQ(waits.Ask(1, "n", "a", 0, 10), Answer::kAbsent);
  EXPECT_EQ(waits.waiting(), 0u);
  EXPECT_THAT(waits.Came("a", {"up", 100, 10}), IsEmpty());
  EXPECT_THAT(waits.Over("a", true), IsEmpty());
}

TEST(RangeWaits, ARangeIsHereWhenItsEndHasCome) {
  RangeWaits waits(kMost);
  waits.Expect("a");
  EXPECT_EQ(waits.Ask(1, "n", "a", 0, 10), Answer::kWaits);
  EXPECT_EQ(waits.Ask(2, "n", "a", 10, 10), Answer::kWaits);
  EXPECT_EQ(waits.Of("a"), nullptr);
  EXPECT_THAT(waits.Came("a", {"up", 25, 9}), IsEmpty());
  EXPECT_THAT(waits.Came("a", {"up", 25, 10}), ElementsAre(1));
  EXPECT_EQ(waits.Of("a")->upload, "up");
  EXPECT_EQ(waits.Ask(3, "n", "a", 5, 5), Answer::kHere);
  EXPECT_EQ(waits.Ask(4, "n", "a", 5, 6), Answer::kWaits);
  EXPECT_THAT(waits.Came("a", {"up", 25, 25}), ElementsAre(4, 2)) << "by their ends";
  EXPECT_EQ(waits.waiting(), 0u);
}

TEST(RangeWaits, ARangeBehindTheEndIsRefusedAsSoonAsTheSizeIsKnown) {
  RangeWaits waits(kMost);
  waits.Expect("a");
  EXPECT_EQ(waits.Ask(1, "n", "a", 1, std::numeric_limits<std::uint64_t>::max()), Answer::kBeyond);
  EXPECT_EQ(waits.Ask(2, "n", "a", 20, 10), Answer::kWaits);
  static_cast<void>(waits.Came("a", {"up", 25, 10}));
  EXPECT_EQ(waits.Ask(3, "n", "a", 20, 10), Answer::kBeyond);
  EXPECT_EQ(waits.Ask(4, "n", "a", 20, 5), Answer::kWaits);
  EXPECT_THAT(waits.Over("a", true), ElementsAre(4, 2)) << "the repository says that it has no such range";
}

TEST(RangeWaits, QuestionsAreBounded) {
  RangeWaits waits(kMost);
  waits.Expect("a");
  waits.Expect("b");
  EXPECT_EQ(waits.Ask(1, "n", "a", 0, 10), Answer::kWaits);
  EXPECT_EQ(waits.Ask(2, "n", "b", 0, 10), Answer::kWaits);
  EXPECT_EQ(waits.Ask(3, "n", "b", 0, 10), Answer::kWaits);
  EXPECT_EQ(waits.Ask(4, "n", "a", 0, 10), Answer::kTooMany);
  EXPECT_TRUE(waits.GiveUp(2));
  EXPECT_FALSE(waits.GiveUp(2));
  EXPECT_EQ(waits.Ask(5, "n", "a", 0, 10), Answer::kWaits);
  EXPECT_THAT(waits.Came("b", {"up", 10, 10}), ElementsAre(3));
}

TEST(RangeWaits, OneNodeDoesNotTakeThePlacesOfOthers) {
  RangeWaits waits({.most = 4, .most_of_one = 2});
  waits.Expect("a");
  EXPECT_EQ(waits.Ask(1, "greedy", "a", 0, 10), Answer::kWaits);
  EXPECT_EQ(waits.Ask(2, "greedy", "a", 10, 10), Answer::kWaits);
  EXPECT_EQ(waits.Ask(3, "greedy", "a", 20, 10), Answer::kTooMany);
  EXPECT_EQ(waits.Ask(4, "other", "a", 0, 10), Answer::kWaits);
  EXPECT_THAT(waits.Came("a", {"up", 100, 10}), ElementsAre(1, 4));
  EXPECT_EQ(waits.Ask(5, "greedy", "a", 20, 10), Answer::kWaits);
  EXPECT_TRUE(waits.GiveUp(2));
  EXPECT_EQ(waits.Ask(6, "greedy", "a", 30, 10), Answer::kWaits);
  EXPECT_THAT(waits.Over("a", true), ElementsAre(5, 6));
}

TEST(RangeWaits, WhenTheFetchFailsItsQuestionsEnd) {
  RangeWaits waits(kMost);
  waits.Expect("a");
  EXPECT_EQ(waits.Ask(1, "n", "a", 0, 10), Answer::kWaits);
  EXPECT_THAT(waits.Over("a", false), ElementsAre(1));
  EXPECT_FALSE(waits.Expects("a"));
  EXPECT_FALSE(waits.GiveUp(1));
}

TEST(RangeWaits, OfTwoFetchesOfAnObjectTheOneThatIsAheadIsRead) {
  RangeWaits waits(kMost);
  waits.Expect("a");
  waits.Expect("a");
  static_cast<void>(waits.Came("a", {"slow", 100, 10}));
  static_cast<void>(waits.Came("a", {"fast", 100, 20}));
  static_cast<void>(waits.Came("a", {"slow", 100, 15}));
  EXPECT_EQ(waits.Of("a")->upload, "fast");
  EXPECT_EQ(waits.Ask(1, "n", "a", 20, 10), Answer::kWaits);
  EXPECT_THAT(waits.Over("a", false), IsEmpty()) << "the other fetch goes on";
  EXPECT_EQ(waits.Of("a"), nullptr) << "which of them ended is not known";
  EXPECT_THAT(waits.Came("a", {"slow", 100, 30}), ElementsAre(1));
  EXPECT_EQ(waits.Ask(2, "n", "a", 30, 10), Answer::kWaits);
  EXPECT_THAT(waits.Over("a", true), ElementsAre(2));
  EXPECT_FALSE(waits.Expects("a"));
}

TEST(RangeWaits, TheFirstOfTwoFetchesThatIsWholeAnswersAll) {
  RangeWaits waits(kMost);
  waits.Expect("a");
  waits.Expect("a");
  EXPECT_EQ(waits.Ask(1, "n", "a", 20, 10), Answer::kWaits);
  EXPECT_THAT(waits.Over("a", true), ElementsAre(1));
  EXPECT_TRUE(waits.Expects("a"));
  EXPECT_THAT(waits.Over("a", true), IsEmpty());
  EXPECT_FALSE(waits.Expects("a"));
}

}  // namespace
}  // namespace troupe::node

#include "node/models/object_pull.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "base/random.hpp"

namespace troupe::node {
namespace {

using Failure = ObjectPull::Failure;
using Question = ObjectPull::Question;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ObjectPull::Limits kLimits{.range_bytes = 10, .under_way = 4, .of_a_source = 3, .in_memory = 6};

std::vector<Question> AskAll(ObjectPull& pull) {
  std::vector<Question> asked;
  while (const auto question = pull.Next()) asked.push_back(*question);
  return asked;
}

std::vector<ObjectPull::Source> SourcesOf(const std::vector<Question>& questions) {
  std::vector<ObjectPull::Source> sources;
  for (const auto& question : questions) sources.push_back(question.source);
  return sources;
}

std::vector<std::uint64_t> OffsetsOf(const std::vector<Question>& questions) {
  std::vector<std::uint64_t> offsets;
  for (const auto& question : questions) offsets.push_back(question.offset);
  return offsets;
}

void KeepAll(ObjectPull& pull) {
  while (pull.FirstHere()) pull.Kept();
}

TEST(ObjectPull, TheManagerAloneIsAskedForSeveralRangesAtOnce) {
  ObjectPull pull(35, 0, kLimits);
  const auto asked = AskAll(pull);
  EXPECT_THAT(OffsetsOf(asked), ElementsAre(0, 10, 20)) << "no more than one source may have under way";
  EXPECT_THAT(SourcesOf(asked), ElementsAre(0, 0, 0));
  EXPECT_TRUE(pull.Arrived(asked[1].ticket));
  EXPECT_FALSE(pull.FirstHere()) << "the bytes before it have not come";
  const auto last = AskAll(pull);
  ASSERT_THAT(OffsetsOf(last), ElementsAre(30));
  EXPECT_EQ(last[0].length, 5u);
  EXPECT_TRUE(pull.Arrived(asked[0].ticket));
  EXPECT_TRUE(pull.Arrived(asked[2].ticket));
  EXPECT_TRUE(pull.Arrived(last[0].ticket));
  KeepAll(pull);
  EXPECT_TRUE(pull.done());
  EXPECT_FALSE(pull.stranded());
}

TEST(ObjectPull, AnObjectWithoutBytesIsOneRange) {
  ObjectPull pull(0, 0, kLimits);
  const auto asked = AskAll(pull);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].length, 0u);
  EXPECT_TRUE(pull.Arrived(asked[0].ticket));
  KeepAll(pull);
  EXPECT_TRUE(pull.done());
}

TEST(ObjectPull, NodesShareTheRangesAndTheManagerIsNotAsked) {
  ObjectPull pull(100, 2, kLimits);
  EXPECT_THAT(AskAll(pull), IsEmpty()) << "the nodes are being reached";
  pull.Reached(1);
  pull.Reached(2);
  EXPECT_THAT(SourcesOf(AskAll(pull)), ElementsAre(1, 2, 1, 2));
}

TEST(ObjectPull, ANodeThatWasNotReachedInTimeIsLeftOut) {
  ObjectPull pull(100, 1, kLimits);
  pull.StopAwaiting();
  pull.Reached(1);
  EXPECT_THAT(SourcesOf(AskAll(pull)), ElementsAre(0, 0, 0));
}

TEST(ObjectPull, WhatALostNodeWasAskedForIsAskedOfTheOthers) {
  ObjectPull pull(100, 2, kLimits);
  pull.Reached(1);
  pull.Reached(2);
  const auto asked = AskAll(pull);
  EXPECT_TRUE(pull.Failed(asked[0].ticket, Failure::kGone));
  EXPECT_TRUE(pull.left_out(1));
  const auto again = AskAll(pull);
  EXPECT_THAT(OffsetsOf(again), ElementsAre(0)) << "the other node may have three under way";
  EXPECT_THAT(SourcesOf(again), ElementsAre(2));
  EXPECT_FALSE(pull.Wants(asked[2].ticket));
  EXPECT_FALSE(pull.Arrived(asked[2].ticket)) << "the node was left out with all that it was asked for";
  EXPECT_FALSE(pull.Failed(asked[2].ticket, Failure::kGone));
}

TEST(ObjectPull, WhenAllNodesAreGoneTheManagerStandsIn) {
  ObjectPull pull(40, 1, kLimits);
  pull.Reached(1);
  const auto asked = AskAll(pull);
  EXPECT_TRUE(pull.Arrived(asked[0].ticket));
  pull.LeaveOut(1);
  const auto rest = AskAll(pull);
  EXPECT_THAT(SourcesOf(rest), ElementsAre(0, 0, 0));
  EXPECT_THAT(OffsetsOf(rest), ElementsAre(10, 20, 30)) << "what has come is not asked for again";
  EXPECT_FALSE(pull.stranded());
  EXPECT_TRUE(pull.Failed(rest[0].ticket, Failure::kGone));
  EXPECT_TRUE(pull.stranded());
  EXPECT_THAT(AskAll(pull), IsEmpty());
}

TEST(ObjectPull, ABusyNodeIsAskedForLessAndThenLeftOut) {
  ObjectPull pull(100, 1, kLimits);
  pull.Reached(1);
  auto asked = AskAll(pull);
  ASSERT_EQ(asked.size(), 3u);
  EXPECT_TRUE(pull.Failed(asked[2].ticket, Failure::kBusy));
  EXPECT_FALSE(pull.left_out(1));
  EXPECT_THAT(AskAll(pull), IsEmpty()) << "two are under way, and no more are asked for";
  EXPECT_TRUE(pull.Arrived(asked[0].ticket));
  EXPECT_EQ(AskAll(pull).size(), 1u);
  EXPECT_EQ(pull.under_way_of(1), 2u);
  pull.LeaveOut(1);
  ObjectPull refused(100, 1, kLimits);
  refused.Reached(1);
  asked = AskAll(refused);
  for (const auto& question : asked) EXPECT_TRUE(refused.Failed(question.ticket, Failure::kBusy));
  EXPECT_TRUE(refused.left_out(1)) << "it has nothing under way, and takes nothing";
}

TEST(ObjectPull, ANodeWithWrongBytesIsAskedForNothingMore) {
  ObjectPull pull(100, 2, kLimits);
  pull.Reached(1);
  pull.Reached(2);
  const auto asked = AskAll(pull);
  EXPECT_TRUE(pull.Failed(asked[1].ticket, Failure::kWrong));
  EXPECT_TRUE(pull.left_out(2));
  for (const auto& question : AskAll(pull)) EXPECT_EQ(question.source, 1u);
}

// Node 1 is fetching the object itself, node 2 has it.
TEST(ObjectPull, ARelayIsAskedAloneAndTheHoldersWhenItIsGone) {
  ObjectPull pull(100, 2, kLimits, 1);
  EXPECT_TRUE(pull.relays(1));
  EXPECT_FALSE(pull.relays(2));
  pull.Reached(2);
  EXPECT_THAT(AskAll(pull), IsEmpty()) << "the relay is being reached";
  pull.Reached(1);
  const auto asked = AskAll(pull);
  EXPECT_THAT(SourcesOf(asked), ElementsAre(1, 1, 1));
  EXPECT_TRUE(pull.Failed(asked[0].ticket, Failure::kGone));
  const auto again = AskAll(pull);
  EXPECT_THAT(OffsetsOf(again), ElementsAre(0, 10, 20));
  EXPECT_THAT(SourcesOf(again), ElementsAre(2, 2, 2));
  pull.LeaveOut(2);
  EXPECT_THAT(SourcesOf(AskAll(pull)), ElementsAre(0, 0, 0));
}

TEST(ObjectPull, ARelayThatIsNotReachedInTimeIsNotWaitedFor) {
  ObjectPull pull(100, 2, kLimits, 1);
  pull.Reached(2);
  pull.StopAwaiting();
  EXPECT_THAT(SourcesOf(AskAll(pull)), ElementsAre(2, 2, 2));
}

TEST(ObjectPull, BesideARelayThatIsLateTheHoldersAreAskedToo) {
  ObjectPull pull(1000, 2,
                  {.range_bytes = 10, .under_way = 5, .of_a_source = 3, .relayed = 2, .in_memory = 9}, 1);
  pull.Reached(1);
  pull.Reached(2);
  const auto asked = AskAll(pull);
  ASSERT_THAT(SourcesOf(asked), ElementsAre(1, 1, 1));
  EXPECT_TRUE(pull.Arrived(asked[0].ticket));
  const auto next = AskAll(pull);
  ASSERT_THAT(SourcesOf(next), ElementsAre(1));
  EXPECT_TRUE(pull.Arrived(asked[1].ticket));
  ASSERT_THAT(SourcesOf(AskAll(pull)), ElementsAre(1));
  pull.Beat();
  EXPECT_THAT(AskAll(pull), IsEmpty()) << "two ranges came, so that it is in time";
  pull.Beat();
  EXPECT_THAT(SourcesOf(AskAll(pull)), ElementsAre(2, 2)) << "nothing came since";
  EXPECT_TRUE(pull.Arrived(asked[2].ticket));
  EXPECT_TRUE(pull.Arrived(next[0].ticket));
  EXPECT_THAT(SourcesOf(AskAll(pull)), ElementsAre(2, 1))
      << "it is asked for what the holder may not be asked for";
  pull.Beat();
  EXPECT_THAT(AskAll(pull), IsEmpty()) << "it is in time again";
}

TEST(ObjectPull, ARelayThatLetsQuestionsWaitInVainTwiceIsLeftOut) {
  ObjectPull pull(1000, 2, kLimits, 1);
  pull.Reached(1);
  pull.Reached(2);
  const auto first = AskAll(pull);
  for (const auto& question : first) EXPECT_TRUE(pull.Failed(question.ticket, Failure::kLater));
  EXPECT_FALSE(pull.left_out(1)) << "these were asked at the same time";
  const auto second = AskAll(pull);
  EXPECT_THAT(OffsetsOf(second), ElementsAre(0, 10, 20, 30));
  EXPECT_THAT(SourcesOf(second), ElementsAre(2, 2, 2, 1)) << "what waited in vain is asked of the other node";
  EXPECT_TRUE(pull.Arrived(second[3].ticket));
  const auto third = AskAll(pull);
  ASSERT_THAT(SourcesOf(third), ElementsAre(1));
  EXPECT_TRUE(pull.Failed(third[0].ticket, Failure::kLater));
  EXPECT_FALSE(pull.left_out(1)) << "something came in between";
  EXPECT_TRUE(pull.Arrived(second[0].ticket));
  const auto fourth = AskAll(pull);
  ASSERT_THAT(SourcesOf(fourth), ElementsAre(2, 1));
  EXPECT_TRUE(pull.Failed(fourth[1].ticket, Failure::kLater));
  EXPECT_TRUE(pull.left_out(1));
}

// All that may lie in memory has come but the first range, which the relay does not send.
TEST(ObjectPull, ARelayThatHoldsUpAllIsHelpedByAHolder) {
  ObjectPull pull(1000, 2, {.range_bytes = 10, .under_way = 4, .of_a_source = 4, .in_memory = 4}, 1);
  pull.Reached(1);
  pull.Reached(2);
  const auto asked = AskAll(pull);
  ASSERT_THAT(SourcesOf(asked), ElementsAre(1, 1, 1, 1));
  for (std::size_t i = 1; i < asked.size(); ++i) EXPECT_TRUE(pull.Arrived(asked[i].ticket));
  const auto second = AskAll(pull);
  EXPECT_THAT(SourcesOf(second), ElementsAre(2));
  EXPECT_THAT(OffsetsOf(second), ElementsAre(0));
}

// The window is six ranges; node 2 answers everything, and node 1 nothing.
TEST(ObjectPull, ASlowNodeHoldsUpNoOther) {
  ObjectPull pull(1000, 2, {.range_bytes = 10, .under_way = 4, .of_a_source = 1, .in_memory = 6});
  pull.Reached(1);
  pull.Reached(2);
  std::vector<Question> slow;
  std::vector<std::uint64_t> of_the_other;
  for (int i = 0; i < 8; ++i) {
    for (const auto& question : AskAll(pull)) {
      if (question.source == 1) {
        slow.push_back(question);
        continue;
      }
      of_the_other.push_back(question.offset);
      EXPECT_TRUE(pull.Arrived(question.ticket));
    }
    KeepAll(pull);
  }
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_THAT(of_the_other, ElementsAre(10, 20, 30, 40, 50, 0, 60, 70))
      << "byte 0 is asked of the other node too";
  EXPECT_FALSE(pull.Wants(slow[0].ticket));
  EXPECT_FALSE(pull.Arrived(slow[0].ticket)) << "it came too late";
  EXPECT_EQ(pull.under_way_of(1), 0u);
}

// What has come waits to be kept: that is no reason to ask another source for what is on its way.
TEST(ObjectPull, ASlowDiskMakesNoSecondQuestions) {
  ObjectPull pull(1000, 2, kLimits);
  pull.Reached(1);
  pull.Reached(2);
  std::vector<Question> asked;
  for (int i = 0; i < 10; ++i) {
    for (const auto& question : AskAll(pull)) asked.push_back(question);
    // All but the last of the six ranges that may lie in memory are here.
    for (const auto& question : asked)
      if (question.offset != 50) static_cast<void>(pull.Arrived(question.ticket));
  }
  EXPECT_EQ(asked.size(), 6u);
  ASSERT_TRUE(pull.FirstHere());
}

TEST(ObjectPull, WhatLiesInMemoryIsBounded) {
  ObjectPull pull(1000, 1, kLimits);
  pull.Reached(1);
  std::set<std::uint64_t> offsets;
  for (int i = 0; i < 20; ++i) {
    for (const auto& question : AskAll(pull)) {
      offsets.insert(question.offset);
      if (question.offset == 0) continue;
      EXPECT_TRUE(pull.Arrived(question.ticket));
    }
  }
  EXPECT_THAT(offsets, ElementsAre(0, 10, 20, 30, 40, 50))
      << "nothing was kept, so nothing more is asked for";
}

// Random sources that answer, refuse, lie and die in a random order: as long as the manager answers, the object comes
// whole, in order, and each range once; and no bound is broken on the way.
TEST(ObjectPullProperty, TheObjectComesWholeWhateverNodesDo) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    Random random(seed);
    const ObjectPull::Limits limits{.range_bytes = 1 + random.Below(12),
                                    .under_way = 1 + random.Below(8),
                                    .of_a_source = 1 + random.Below(6),
                                    .in_memory = 1 + random.Below(16)};
    const auto nodes = random.Below(4);
    const auto total = random.Below(300);
    ObjectPull pull(total, nodes, limits, random.Below(nodes + 1));
    std::vector<Question> open;
    std::set<ObjectPull::Source> reached, out;
    std::uint64_t kept = 0;
    for (int step = 0; !pull.done(); ++step) {
      ASSERT_LT(step, 20000) << "seed " << seed << ": the pull does not end";
      ASSERT_FALSE(pull.stranded()) << "seed " << seed;
      while (const auto question = pull.Next()) {
        ASSERT_FALSE(out.contains(question->source))
            << "seed " << seed << ": a source that was left out is asked";
        ASSERT_TRUE(question->source == 0 || reached.contains(question->source)) << "seed " << seed;
        ASSERT_LE(question->offset + question->length, total);
        ASSERT_LT(question->offset, kept + limits.in_memory * limits.range_bytes);
        ASSERT_LE(pull.under_way(), limits.under_way) << "seed " << seed;
        ASSERT_LE(pull.under_way_of(question->source), limits.of_a_source) << "seed " << seed;
        open.push_back(*question);
      }
      const auto what = random.Below(100);
      if (what < 3 && nodes > 0) {
        const auto node = 1 + random.Below(nodes);
        pull.LeaveOut(node);
        out.insert(node);
      } else if (what < 15 && nodes > 0) {
        const auto node = 1 + random.Below(nodes);
        pull.Reached(node);
        reached.insert(node);
      } else if (what == 16) {
        pull.Beat();
      } else if (what < 16) {
        pull.StopAwaiting();
        for (ObjectPull::Source node = 1; node <= nodes; ++node)
          if (!reached.contains(node)) out.insert(node);
      } else if (what < 60 && pull.FirstHere()) {
        ASSERT_EQ(*pull.FirstHere(), kept) << "seed " << seed << ": out of order";
        pull.Kept();
        kept = std::min(total, kept + limits.range_bytes);
      } else if (!open.empty()) {
        const auto at = random.Below(open.size());
        const auto question = open[at];
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
        const auto how = random.Below(10);
        if (question.source == 0 || how < 7) {
          static_cast<void>(pull.Arrived(question.ticket));
        } else {
          constexpr Failure kFailures[] = {Failure::kBusy, Failure::kGone, Failure::kWrong, Failure::kLater};
          const auto failure = kFailures[random.Below(4)];
          static_cast<void>(pull.Failed(question.ticket, failure));
          if (pull.left_out(question.source)) out.insert(question.source);
        }
      }
    }
    EXPECT_EQ(kept, total) << "seed " << seed;
  }
}

}  // namespace
}  // namespace troupe::node

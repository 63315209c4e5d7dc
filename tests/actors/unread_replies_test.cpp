#include "actors/gateway/unread_replies.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::actors {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

bool IsNode1(const std::string& node) {
  return node == "node-1";
}

TEST(UnreadReplies, ANodeIsToldAgainUntilItHasHeard) {
  UnreadReplies unread;
  unread.Released("node-1", 7);
  unread.Released("node-1", 8);
  unread.Released("node-2", 9);
  const auto told = unread.ReleasedAt("node-1");
  EXPECT_THAT(told.tickets, ElementsAre(7, 8));
  unread.Released("node-1", 10);
  unread.Heard("node-1", told.last_release);
  EXPECT_THAT(unread.ReleasedAt("node-1").tickets, ElementsAre(10));
  EXPECT_THAT(unread.ReleasedAt("node-2").tickets, ElementsAre(9));
}

// The node was lost and is there again, and its answer of before comes late.
TEST(UnreadReplies, AnAnswerOfBeforeIsNoAnswerToWhatWasReleasedSince) {
  UnreadReplies unread;
  unread.Released("node-1", 7);
  const auto told = unread.ReleasedAt("node-1");
  unread.ForgetIf(&IsNode1);
  unread.Released("node-1", 8);
  unread.Heard("node-1", told.last_release);
  EXPECT_THAT(unread.ReleasedAt("node-1").tickets, ElementsAre(8));
}

TEST(UnreadReplies, ACallersEndGivesWhatItHasNotRead) {
  UnreadReplies unread;
  const caf::actor_addr thread;
  EXPECT_FALSE(unread.Add(1, "node-1", thread)) << "a thread is not watched";
  EXPECT_EQ(unread.Take(1), "node-1");
  EXPECT_EQ(unread.Take(1), std::nullopt);
  EXPECT_THAT(unread.TakeOf(thread), IsEmpty());
}

}  // namespace
}  // namespace troupe::actors

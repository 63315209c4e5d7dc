#include "gpu/swap/block_queue.hpp"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

std::vector<BlockQueue::Id> Next(BlockQueue& queue, int count) {
  std::vector<BlockQueue::Id> ids;
  for (; count > 0; --count) ids.push_back(queue.Next().value_or(0));
  return ids;
}

TEST(BlockQueue, EqualsTakeTurns) {
  BlockQueue queue;
  EXPECT_FALSE(queue.Next().has_value());
  queue.Add(1, 0);
  queue.Add(2, 0);
  EXPECT_THAT(Next(queue, 4), testing::ElementsAre(1, 2, 1, 2));
  queue.Add(3, 0);
  EXPECT_THAT(Next(queue, 6), testing::ElementsAre(1, 2, 3, 1, 2, 3));
  queue.Remove(2);
  EXPECT_THAT(Next(queue, 4), testing::ElementsAre(1, 3, 1, 3));
}

TEST(BlockQueue, TheMostUrgentGoesFirst) {
  BlockQueue queue;
  queue.Add(1, 20);
  queue.Add(2, 10);
  EXPECT_EQ(queue.MostUrgent(), 10);
  EXPECT_THAT(Next(queue, 3), testing::ElementsAre(2, 2, 2));
  queue.Add(3, 5);
  EXPECT_THAT(Next(queue, 2), testing::ElementsAre(3, 3));
  queue.Remove(3);
  queue.Remove(2);
  queue.Remove(2);
  EXPECT_THAT(Next(queue, 2), testing::ElementsAre(1, 1));
}

TEST(BlockQueue, RaisingMakesMoreUrgentNeverLess) {
  BlockQueue queue;
  queue.Add(1, 20);
  queue.Add(2, 10);
  queue.Raise(2, 30);
  EXPECT_EQ(queue.Next(), 2u);
  queue.Raise(1, 5);
  queue.Raise(9, 0);
  EXPECT_EQ(queue.Next(), 1u);
  EXPECT_EQ(queue.size(), 2u);
}

TEST(BlockQueueDeathTest, ATransferIsQueuedOnce) {
  BlockQueue queue;
  queue.Add(1, 0);
  EXPECT_DEATH(queue.Add(1, 0), "once");
}

}  // namespace
}  // namespace troupe::gpu

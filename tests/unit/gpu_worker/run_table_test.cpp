#include "gpu/worker/run_table.hpp"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

using testing::ElementsAre;

constexpr Time kReceived{std::chrono::seconds(100)};

class RunTableTest : public testing::Test {
 protected:
  std::optional<RunId> Add(std::uint64_t sequence, std::uint32_t priority = 0, Duration timeout = {}) {
    RunRequest request;
    request.sequence = sequence;
    request.order.set_priority(priority);
    request.order.set_timeout_ns(timeout.count());
    request.received = kReceived;
    Reply reply(sequence, kReceived, [](const proto::WorkerOutcome&) {});
    return table_.Add(std::move(request), reply, 0);
  }
  // As a run that is staged and has its inputs.
  void MakeReady(RunId id) {
    table_.LeaveQueue(id);
    table_.Find(id)->stage = Run::Stage::kReady;
    table_.Ready(id);
  }
  static bool Any(RunId, const gpu::Run&) { return true; }
  std::vector<RunId> Expired(Time now) {
    std::vector<RunId> ids;
    table_.Expire(now, [&](RunId id) { ids.push_back(id); });
    return ids;
  }
  RunTable table_;
};

TEST_F(RunTableTest, ASequenceIsThatOfOneRunUntilItIsTaken) {
  const auto first = Add(7);
  ASSERT_TRUE(first);
  EXPECT_FALSE(Add(7));
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(table_.OfSequence(7), first);
  EXPECT_EQ(table_.Take(*first)->request.sequence, 7u);
  EXPECT_EQ(table_.Find(*first), nullptr);
  EXPECT_FALSE(table_.OfSequence(7));
  EXPECT_TRUE(Add(7));
}

TEST_F(RunTableTest, SequencesOfANewDaemonBeginAnew) {
  const auto before = Add(1);
  table_.ForgetSequences();
  const auto after = Add(1);
  ASSERT_TRUE(before && after);
  EXPECT_EQ(table_.size(), 2u);
  (void)table_.Take(*before);
  EXPECT_EQ(table_.OfSequence(1), after) << "the end of an old run forgets the sequence of a new one";
}

TEST_F(RunTableTest, ARunWaitsInTheQueueOfItsStage) {
  const RunId low = *Add(1, 5);
  const RunId high = *Add(2, 0);
  EXPECT_EQ(table_.waiting(), 2u);
  EXPECT_EQ(table_.FirstWaiting(kReceived, Any), high);
  EXPECT_EQ(
      table_.FirstWaiting(kReceived, [&](RunId, const gpu::Run& run) { return run.request.sequence == 1; }),
      low);
  MakeReady(high);
  EXPECT_EQ(table_.waiting(), 1u);
  EXPECT_EQ(table_.FirstWaiting(kReceived, Any), low);
  EXPECT_EQ(table_.FirstReady(kReceived, Any), high);
  (void)table_.Take(high);
  EXPECT_FALSE(table_.FirstReady(kReceived, Any));
  (void)table_.Take(low);
  EXPECT_EQ(table_.waiting(), 0u);
}

TEST_F(RunTableTest, WhatHasExpiredLeavesItsQueueAndStays) {
  const RunId late = *Add(1, 0, std::chrono::seconds(1));
  const RunId later = *Add(2, 0, std::chrono::seconds(2));
  const RunId never = *Add(3);
  MakeReady(later);
  EXPECT_EQ(table_.NextExpiry(), kReceived + std::chrono::seconds(1));
  EXPECT_THAT(Expired(kReceived + std::chrono::seconds(1)), ElementsAre(late));
  EXPECT_EQ(table_.NextExpiry(), kReceived + std::chrono::seconds(2));
  EXPECT_THAT(Expired(kReceived + std::chrono::seconds(9)), ElementsAre(later));
  EXPECT_EQ(table_.NextExpiry(), Time::max());
  EXPECT_EQ(table_.size(), 3u);
  EXPECT_EQ(table_.FirstWaiting(kReceived, Any), never);
}

TEST_F(RunTableTest, RunsByLayerAreCountedUntilTheyAreTaken) {
  const RunId id = *Add(1);
  table_.MarkByLayer(*table_.Find(id));
  EXPECT_EQ(table_.by_layer(), 1u);
  (void)table_.Take(id);
  EXPECT_EQ(table_.by_layer(), 0u);
}

TEST_F(RunTableTest, AllAreInTheOrderOfTheirSubmission) {
  const RunId first = *Add(9, 3);
  const RunId second = *Add(4, 0);
  EXPECT_THAT(table_.All([](const gpu::Run&) { return true; }), ElementsAre(first, second));
  EXPECT_TRUE(table_.Any([](const gpu::Run& run) { return run.request.sequence == 4; }));
  EXPECT_FALSE(table_.Any([](const gpu::Run& run) { return run.request.sequence == 5; }));
}

}  // namespace
}  // namespace troupe::gpu

#include "cluster/import_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace troupe::cluster {
namespace {

using Ticket = ImportQueue::Ticket;

Time At(int seconds) {
  return Time{} + std::chrono::seconds(seconds);
}

class Queue {
 public:
  explicit Queue(ImportQueue::Limits limits) : queue_(limits) {}
  Ticket Add(const std::string& client, Bytes size = KiB(1), int second = 0) {
    const auto admitted = queue_.Add(client, size, At(second));
    EXPECT_TRUE(admitted.ok()) << admitted.status();
    return admitted.ok() ? admitted->ticket : 0;
  }
  // All imports that may begin now.
  std::vector<Ticket> Begin(int second = 0) {
    std::vector<Ticket> begun;
    while (const auto ticket = queue_.Begin(At(second))) begun.push_back(*ticket);
    return begun;
  }
  ImportQueue& operator*() { return queue_; }
  ImportQueue* operator->() { return &queue_; }

 private:
  ImportQueue queue_;
};

ImportQueue::Limits Jobs(std::size_t jobs) {
  ImportQueue::Limits limits;
  limits.jobs = jobs;
  limits.client_files = 200;
  return limits;
}

using Tickets = std::vector<Ticket>;

TEST(ImportQueue, OneClientWithAHundredFilesDelaysAnotherByOneImportForEachImporter) {
  for (const std::size_t jobs : {1u, 2u, 3u, 8u}) {
    Queue queue(Jobs(jobs));
    for (int i = 0; i < 100; ++i) queue.Add("many");
    auto running = queue.Begin();
    const auto other = queue.Add("other", MiB(8));
    // Each import that runs ends once; then the other client's must have begun.
    bool begun = false;
    for (const Ticket ticket : running) {
      queue->End(ticket);
      for (const Ticket next : queue.Begin()) begun |= next == other;
    }
    if (begun) continue;
    const auto order = queue->Order(At(0));
    EXPECT_LE(std::find(order.begin(), order.end(), other) - order.begin(), 1) << jobs;
  }
}

TEST(ImportQueue, ClientsTakeTurnsWhateverTheSizeOfTheirFiles) {
  Queue queue(Jobs(1));
  const Tickets small = {queue.Add("a"), queue.Add("a"), queue.Add("a")};
  const Tickets large = {queue.Add("b", GiB(1)), queue.Add("b", GiB(1))};
  Tickets order;
  while (order.size() < 5) {
    const auto next = queue->Begin(At(0));
    ASSERT_TRUE(next.has_value());
    order.push_back(*next);
    queue->End(*next);
  }
  EXPECT_EQ(order, (Tickets{small[0], large[0], small[1], large[1], small[2]}));
}

TEST(ImportQueue, AClientThatSendsOneFileAfterTheOtherGainsNothing) {
  Queue queue(Jobs(1));
  const auto large = queue.Add("b", GiB(1));
  for (int i = 0; i < 2; ++i) {
    const auto small = queue.Add("a");
    const auto next = queue->Begin(At(0));
    EXPECT_EQ(next, i == 0 ? small : large);
    queue->End(*next);
  }
}

TEST(ImportQueue, OfOneClientTheSmallerFileGoesFirstUntilALargeOneHasWaitedLong) {
  Queue queue(Jobs(1));
  const auto large = queue.Add("a", GiB(1), 0);
  const auto middle = queue.Add("a", MiB(1), 30);
  const auto small = queue.Add("a", KiB(1), 30);
  EXPECT_EQ(queue->Begin(At(60)), small);
  queue->End(small);
  EXPECT_EQ(queue->Begin(At(61)), large) << "the large file has waited for more than a minute";
  queue->End(large);
  EXPECT_EQ(queue->Begin(At(61)), middle);
}

TEST(ImportQueue, TheLastFreeImporterIsKeptForSmallFilesOfClientsThatHaveNoneRunning) {
  Queue queue(Jobs(2));
  const auto first = queue.Add("a");
  const auto second = queue.Add("a");
  EXPECT_EQ(queue.Begin(), Tickets{first}) << "one client never holds both";
  const auto large = queue.Add("b", MiB(17));
  EXPECT_TRUE(queue.Begin().empty()) << "a large file never takes the last one";
  const auto small = queue.Add("c", MiB(16));
  EXPECT_EQ(queue.Begin(), Tickets{small});
  queue->End(first);
  EXPECT_EQ(queue.Begin(), Tickets{second}) << "a client without a running import may have the last one";
  queue->End(second);
  EXPECT_TRUE(queue.Begin().empty()) << "the large file waits until no import runs";
  queue->End(small);
  EXPECT_EQ(queue.Begin(), Tickets{large});
}

TEST(ImportQueue, SaysInWhichOrderTheFilesThatWaitWillBegin) {
  Queue queue(Jobs(1));
  queue.Add("a");
  queue.Begin();
  const Tickets waiting = {queue.Add("a", MiB(3)), queue.Add("a", MiB(2)), queue.Add("b", MiB(9))};
  EXPECT_EQ(queue->Order(At(0)), (Tickets{waiting[1], waiting[2], waiting[0]}));
  EXPECT_EQ(queue->waiting(), 3u) << "no import begins when the order is asked for";
}

TEST(ImportQueue, AFullQueueRefusesTheClientThatFillsItAndNoOther) {
  auto limits = Jobs(1);
  limits.client_files = 3;
  Queue queue(limits);
  for (int i = 0; i < 3; ++i) queue.Add("a");
  const auto refused = queue->Add("a", KiB(1), At(0));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("'a' has 3 files"), std::string::npos) << refused.status();
  queue.Add("b");
}

TEST(ImportQueue, BytesAreBoundedButOneFileOfAnySizeMayWait) {
  auto limits = Jobs(1);
  limits.client_bytes = MiB(10);
  limits.bytes = MiB(20);
  Queue queue(limits);
  queue.Add("a", MiB(30));
  EXPECT_EQ(queue->Add("a", KiB(1), At(0)).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ImportQueue, AtTheBoundOfAllAClientBelowItsShareTakesAPlaceOfTheGreediest) {
  auto limits = Jobs(1);
  limits.files = 4;
  Queue queue(limits);
  Ticket newest = 0;
  for (int i = 0; i < 4; ++i) newest = queue.Add("a");
  const auto admitted = queue->Add("b", KiB(1), At(0));
  ASSERT_TRUE(admitted.ok()) << admitted.status();
  EXPECT_EQ(admitted->dropped, Tickets{newest});
  EXPECT_EQ(queue->waiting(), 4u);
  EXPECT_FALSE(queue->Add("a", KiB(1), At(0)).ok());
}

TEST(ImportQueue, WhatEndsFreesItsPlaceWhetherItRanOrWaited) {
  Queue queue(Jobs(1));
  const auto first = queue.Add("a");
  const auto second = queue.Add("a");
  queue->End(first);
  EXPECT_EQ(queue.Begin(), Tickets{second});
  queue->End(second);
  queue->End(second);
  queue->End(99);
  EXPECT_EQ(queue->waiting() + queue->running(), 0u);
}

}  // namespace
}  // namespace troupe::cluster

#include "gpu/worker/run_queue.hpp"

#include <algorithm>
#include <tuple>

#include "base/random.hpp"
#include "gmock/gmock.h"
#include "gpu/worker/launch_order.hpp"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

constexpr Time kNever = Time::max();
Time At(std::int64_t seconds) {
  return Time(std::chrono::seconds(seconds));
}
bool Any(std::uint64_t) {
  return true;
}

TEST(RunQueue, ServesByPriorityThenArrival) {
  RunQueue queue;
  queue.Add(1, 5, 0, kNever);
  queue.Add(2, 0, 0, kNever);
  queue.Add(3, 5, 0, kNever);
  queue.Add(4, 0, 0, kNever);
  EXPECT_THAT(queue.All(), testing::ElementsAre(2, 4, 1, 3));
  EXPECT_EQ(queue.First({}, Any), 2u);
  EXPECT_EQ(queue.First({}, [](std::uint64_t id) { return id % 2 == 1; }), 1u);
  EXPECT_EQ(queue.First({}, [](std::uint64_t) { return false; }), std::nullopt);
}

TEST(RunQueue, OfOnePriorityTheMostUrgentGoesFirst) {
  RunQueue queue;
  queue.Add(1, 0, 30, kNever);
  queue.Add(2, 0, 20, kNever);
  queue.Add(3, 0, 20, kNever);
  queue.Add(4, 1, 10, kNever);
  EXPECT_THAT(queue.All(), testing::ElementsAre(2, 3, 1, 4));
  queue.Remove(2);
  EXPECT_THAT(queue.All(), testing::ElementsAre(3, 1, 4));
}

TEST(RunQueue, KnowsEachOnce) {
  RunQueue queue;
  EXPECT_TRUE(queue.Add(1, 0, 0, kNever));
  EXPECT_FALSE(queue.Add(1, 3, 0, kNever));
  EXPECT_TRUE(queue.Contains(1));
  EXPECT_TRUE(queue.Remove(1));
  EXPECT_FALSE(queue.Remove(1));
  EXPECT_FALSE(queue.Contains(1));
  EXPECT_EQ(queue.size(), 0u);
}

TEST(RunQueue, ExpiresInOrderAndForgetsTheExpired) {
  RunQueue queue;
  queue.Add(1, 0, 0, At(30));
  queue.Add(2, 0, 0, At(10));
  queue.Add(3, 0, 0, kNever);
  queue.Add(4, 0, 0, At(10));
  EXPECT_EQ(queue.NextExpiry(), At(10));
  EXPECT_THAT(queue.TakeExpired(At(9)), testing::IsEmpty());
  EXPECT_THAT(queue.TakeExpired(At(10)), testing::ElementsAre(2, 4));
  EXPECT_THAT(queue.All(), testing::ElementsAre(1, 3));
  queue.Remove(1);
  EXPECT_EQ(queue.NextExpiry(), kNever);
}

TEST(RunQueue, WhatIsLateYieldsWithinItsPriority) {
  RunQueue queue;
  queue.Add(1, 0, 20, kNever);
  queue.Add(2, 0, 10, kNever);
  queue.Add(3, 0, 30, kNever);
  queue.Add(4, 1, 30, kNever);
  const auto first = [&](std::int64_t now) { return queue.First(Time(Duration(now)), Any); };
  EXPECT_EQ(first(10), 2u);
  EXPECT_EQ(first(15), 1u);
  EXPECT_EQ(first(25), 3u);
  EXPECT_EQ(first(31), 2u);                       // all runs are late
  EXPECT_EQ(first(20 + kUnhurried.count()), 2u);  // run 2 has waited for long enough
  queue.Remove(3);
  EXPECT_EQ(first(25), 2u);  // the turn does not pass to another priority
}

// The first run is the first by priority, by whether it yields, by urgency and by arrival.
using Entry = std::tuple<std::uint32_t, Urgency, std::uint64_t>;
std::optional<std::uint64_t> FirstOf(const std::vector<Entry>& entries, Time now) {
  const auto rank = [now](const Entry& entry) {
    const auto& [priority, urgency, id] = entry;
    return std::tuple(priority, TurnAt(urgency, now), id);
  };
  if (entries.empty()) return std::nullopt;
  return std::get<2>(*std::ranges::min_element(entries, {}, rank));
}

TEST(RunQueue, AgreesWithAPlainListOverManyRandomSteps) {
  RunQueue queue;
  // The key is priority, urgency and id; ids grow with arrival.
  std::vector<Entry> model;
  Random random(7);
  std::uint64_t next = 1;
  for (int step = 0; step < 20'000; ++step) {
    if (random.Below(2) == 0) {
      const auto priority = static_cast<std::uint32_t>(random.Below(3));
      const auto urgency = static_cast<Urgency>(random.Below(4));
      queue.Add(next, priority, urgency, kNever);
      model.emplace_back(priority, urgency, next++);
      std::sort(model.begin(), model.end());
    } else if (!model.empty()) {
      const std::size_t victim = random.Below(model.size());
      ASSERT_TRUE(queue.Remove(std::get<2>(model[victim])));
      model.erase(model.begin() + static_cast<std::ptrdiff_t>(victim));
    }
    ASSERT_EQ(queue.size(), model.size());
    const Time now(Duration(static_cast<Duration::rep>(random.Below(6))) +
                   (random.Below(4) == 0 ? kUnhurried : Duration()));
    ASSERT_EQ(queue.First(now, Any), FirstOf(model, now));
  }
}

}  // namespace
}  // namespace troupe::gpu

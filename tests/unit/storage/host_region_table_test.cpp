#include "storage/host_region_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "base/random.hpp"

namespace troupe::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kBegin = 100;

// A region of 100 bytes with entries at the given places, used in the order given.
class HostRegionTableTest : public testing::Test {
 protected:
  HostRegionTable table_{kBegin, Bytes(100)};

  HostRegionTable::Entry& Add(const std::string& digest, std::uint64_t offset, std::uint64_t length) {
    proto::HostCopy copy;
    copy.set_digest(digest);
    table_.Insert(copy, kBegin + offset, Bytes(length));
    table_.Find(digest)->filling = false;
    return *table_.Find(digest);
  }
};

TEST_F(HostRegionTableTest, AnEmptyRegionNeedsNoEviction) {
  EXPECT_THAT(*table_.PlanRoom(Bytes(100)), IsEmpty());
  EXPECT_TRUE(absl::IsFailedPrecondition(table_.PlanRoom(Bytes(101)).status()));
}

TEST_F(HostRegionTableTest, GapsAreUsedBeforeAnythingLeaves) {
  Add("a", 0, 30);
  Add("b", 60, 40);
  EXPECT_THAT(*table_.PlanRoom(Bytes(30)), IsEmpty());
  EXPECT_THAT(*table_.PlanRoom(Bytes(31)), ElementsAre("a"));
}

TEST_F(HostRegionTableTest, TheColdestLeaves) {
  Add("a", 0, 50);
  Add("b", 50, 50);
  EXPECT_THAT(*table_.PlanRoom(Bytes(50)), ElementsAre("a"));
  table_.Touch(*table_.Find("a"));
  EXPECT_THAT(*table_.PlanRoom(Bytes(50)), ElementsAre("b"));
}

TEST_F(HostRegionTableTest, OneHotModelIsNotSacrificedForAColdNeighbour) {
  Add("cold 1", 0, 20);
  Add("cold 2", 40, 20);
  Add("cold 3", 60, 20);
  Add("hot", 20, 20);
  Add("hotter", 80, 20);
  // "cold 1" is colder than both, but alone it is too small, and "hot" lies between.
  EXPECT_THAT(*table_.PlanRoom(Bytes(40)), ElementsAre("cold 2", "cold 3"));
}

TEST_F(HostRegionTableTest, NoMoreLeavesThanMust) {
  for (int i = 0; i < 10; ++i) Add("m" + std::to_string(i), static_cast<std::uint64_t>(i) * 10, 10);
  EXPECT_THAT(*table_.PlanRoom(Bytes(25)), ElementsAre("m0", "m1", "m2"));
}

TEST_F(HostRegionTableTest, WhatIsReadOrFilledStays) {
  Add("pinned", 40, 20).pins = 1;
  Add("old", 0, 40);
  Add("filling", 60, 10).filling = true;
  Add("new", 70, 30);
  EXPECT_THAT(*table_.PlanRoom(Bytes(40)), ElementsAre("old"));
  EXPECT_THAT(*table_.PlanRoom(Bytes(30)), ElementsAre("old"));
  const absl::Status status = table_.PlanRoom(Bytes(41)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no room for 41 B in the host region of 100 B: 30 B are"));
  EXPECT_EQ(table_.in_use(), Bytes(30));
}

using HostRegionTableDeathTest = HostRegionTableTest;
TEST_F(HostRegionTableDeathTest, OverlapsAndStrangersAreBugs) {
  Add("a", 10, 30);
  EXPECT_DEATH(Add("b", 0, 11), "overlaps its successor");
  EXPECT_DEATH(Add("b", 39, 10), "overlaps its predecessor");
  EXPECT_DEATH(Add("b", 90, 11), "outside the region");
  EXPECT_DEATH(Add("a", 50, 10), "lies in the region once");
  table_.Find("a")->pins = 1;
  EXPECT_DEATH(table_.Erase("a"), "only a model without readers is erased");
  EXPECT_DEATH(table_.Erase("absent"), "only a model without readers is erased");
}

// Tries all runs of neighbours one by one.
std::optional<std::tuple<std::uint64_t, std::uint64_t>> BestByTrying(const HostRegionTable& table,
                                                                     std::uint64_t size) {
  std::vector<const HostRegionTable::Entry*> order;
  for (const auto& [digest, entry] : table.entries()) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  std::optional<std::tuple<std::uint64_t, std::uint64_t>> best;
  for (std::size_t first = 0; first <= order.size(); ++first) {
    const std::uint64_t left =
        first == 0 ? kBegin : order[first - 1]->offset + order[first - 1]->length.count();
    std::uint64_t hottest = 0;
    std::uint64_t bytes = 0;
    for (std::size_t last = first; last <= order.size(); ++last) {
      const std::uint64_t right = last == order.size() ? kBegin + 100 : order[last]->offset;
      const std::tuple<std::uint64_t, std::uint64_t> cost{hottest, bytes};
      if (right - left >= size && (!best || cost < *best)) best = cost;
      if (last == order.size() || !order[last]->evictable()) break;
      hottest = std::max(hottest, order[last]->last_use);
      bytes += order[last]->length.count();
    }
  }
  return best;
}

TEST(HostRegionTable, ThePlanIsTheBestOfAllOnRandomRegions) {
  Random random(20240607);
  int planned = 0;
  for (int round = 0; round < 2000; ++round) {
    HostRegionTable table(kBegin, Bytes(100));
    int number = 0;
    for (std::uint64_t at = random.Below(10); at < 95;) {
      const std::uint64_t length = std::min<std::uint64_t>(1 + random.Below(20), 100 - at);
      proto::HostCopy copy;
      copy.set_digest(std::to_string(number++));
      table.Insert(copy, kBegin + at, Bytes(length));
      table.Find(copy.digest())->filling = random.Below(8) == 0;
      at += length + (random.Below(2) ? 0 : random.Below(8));
    }
    for (int i = 0; i < 20; ++i)
      table.Touch(*table.Find(std::to_string(random.Below(static_cast<unsigned>(number)))));
    const std::uint64_t size = 1 + random.Below(60);
    const auto plan = table.PlanRoom(Bytes(size));
    const auto best = BestByTrying(table, size);
    ASSERT_EQ(plan.ok(), best.has_value()) << "round " << round;
    if (!best) continue;
    ++planned;
    std::uint64_t hottest = 0;
    std::uint64_t bytes = 0;
    for (const std::string& victim : *plan) {
      hottest = std::max(hottest, table.Find(victim)->last_use);
      bytes += table.Find(victim)->length.count();
    }
    ASSERT_EQ(std::make_tuple(hottest, bytes), *best) << "round " << round;
  }
  EXPECT_GT(planned, 1000);
}

}  // namespace
}  // namespace troupe::storage

#include "gpu/memory/partition_space.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

constexpr Bytes kSpace = MiB(128);  // 128 partitions of 1 MiB, blocks of 16 KiB

MemoryUser Weights(std::string_view digest) {
  return {MemoryUser::Kind::kWeights, digest};
}
MemoryUser ForRun(std::string_view digest) {
  return {MemoryUser::Kind::kRun, digest};
}

class PartitionSpaceTest : public testing::Test {
 protected:
  std::uint64_t Take(const MemoryUser& user, Bytes size) {
    const auto offset = space_.Allocate(user, size);
    EXPECT_TRUE(offset.has_value()) << size.count();
    return offset.value_or(0);
  }
  PartitionSpace space_{kSpace};
};

TEST(PartitionSizes, FollowTheQuota) {
  EXPECT_EQ(PartitionSizes::For(kSpace).partition, MiB(1));
  EXPECT_EQ(PartitionSizes::For(GiB(1)).partition, MiB(8));
  EXPECT_EQ(PartitionSizes::For(GiB(1)).block, KiB(128));
  EXPECT_EQ(PartitionSizes::For(GiB(16)).partition, MiB(32));
  EXPECT_EQ(PartitionSizes::For(GiB(139)).partition, MiB(128));
  EXPECT_EQ(PartitionSizes::For(Bytes(0)).partition, KiB(16));
}

TEST_F(PartitionSpaceTest, AnEvictionFreesWholePartitions) {
  // Models of many sizes come one after the other, each with a few ranges: all partitions but those at their
  // borders belong to one model.
  std::map<std::string, std::vector<std::uint64_t>> models;
  for (int m = 0; m < 8; ++m) {
    const std::string digest = "model-" + std::to_string(m);
    for (const Bytes size : {MiB(5) + KiB(100), MiB(3), KiB(200)})
      models[digest].push_back(Take(Weights(digest), size));
  }
  const std::size_t before = space_.free_partitions();
  for (const std::uint64_t offset : models["model-3"]) ASSERT_TRUE(space_.Free(offset));
  EXPECT_GE(space_.free_partitions(), before + 7) << "8.3 MiB were evicted";
}

TEST_F(PartitionSpaceTest, ATrimmedRangeGivesBackItsEnd) {
  // The ranges lie in blocks, across the border of partitions, and in a buddy partition.
  for (const Bytes size : {MiB(5), KiB(320), Bytes(40'000)}) {
    const std::uint64_t range = Take(ForRun("a"), size);
    const Bytes before = *space_.Occupied(range);
    EXPECT_EQ(space_.Trim(range, size), before) << "a trim to the same size frees nothing";
    const Bytes kept = *space_.Trim(range, Bytes(size.count() / 3));
    EXPECT_LT(kept, Bytes(before.count() / 2));
    EXPECT_GE(kept, Bytes(size.count() / 3));
    EXPECT_EQ(space_.use().free, kSpace - kept);
    EXPECT_EQ(*space_.Occupied(range), kept);
    // Bytes that were given back are handed out again, and bytes that were kept never.
    std::vector<std::uint64_t> others;
    for (auto other = space_.Allocate(Weights("b"), KiB(16)); other;
         other = space_.Allocate(Weights("b"), KiB(16))) {
      EXPECT_TRUE(*other >= range + kept.count() || *other + KiB(16).count() <= range) << *other;
      others.push_back(*other);
    }
    EXPECT_LT(space_.use().free, KiB(16));
    for (const std::uint64_t other : others) EXPECT_TRUE(space_.Free(other));
    EXPECT_TRUE(space_.Free(range));
    EXPECT_EQ(space_.use().free, kSpace);
    EXPECT_EQ(space_.use().largest, kSpace);
  }
  EXPECT_FALSE(space_.Trim(5, KiB(1)).has_value());
}

// What the next worker does with the weights that are on record.
TEST_F(PartitionSpaceTest, RangesAreTakenAgainWhereTheyWereInAnyOrder) {
  Random random(11);
  for (int round = 0; round < 20; ++round) {
    std::map<std::uint64_t, Bytes> held;
    PartitionSpace first(kSpace);
    // Some are freed again, so that there are holes; not so full that ranges lie where they would rather not.
    while (first.use().free > Bytes(kSpace.count() / 2)) {
      const Bytes size(random.Below(3) == 0 ? random.Below(KiB(64).count()) : random.Below(MiB(6).count()));
      const std::string digest = "model-" + std::to_string(random.Below(9));
      const auto offset = first.Allocate(Weights(digest), size);
      ASSERT_TRUE(offset.has_value());
      held[*offset] = size;
      if (random.Below(4) != 0) continue;
      auto one = held.begin();
      std::advance(one, static_cast<std::ptrdiff_t>(random.Below(held.size())));
      ASSERT_TRUE(first.Free(one->first));
      held.erase(one);
    }
    std::vector<std::pair<std::uint64_t, Bytes>> order(held.begin(), held.end());
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
    PartitionSpace second(kSpace);
    for (const auto& [offset, size] : order) {
      ASSERT_TRUE(second.AllocateAt(Weights("m"), offset, size)) << offset << ", " << size.count();
      EXPECT_FALSE(second.AllocateAt(Weights("m"), offset, size)) << "it is taken";
      EXPECT_EQ(second.Occupied(offset), first.Occupied(offset));
    }
    EXPECT_EQ(second.use().free, first.use().free);
    EXPECT_EQ(second.free_partitions(), first.free_partitions());
    // What is handed out now lies beside them.
    while (const auto other = second.Allocate(Weights("other"), KiB(300))) {
      const auto next = held.lower_bound(*other);
      EXPECT_TRUE(next == held.end() || *other + KiB(300).count() <= next->first);
      EXPECT_TRUE(next == held.begin() || std::prev(next)->first + std::prev(next)->second.count() <= *other);
      held[*other] = KiB(300);
    }
    for (const auto& [offset, size] : held) EXPECT_TRUE(second.Free(offset));
    EXPECT_EQ(second.use().free, kSpace);
    EXPECT_EQ(second.use().largest, kSpace);
  }
}

TEST_F(PartitionSpaceTest, ARangeThatCannotHaveBeenGivenOutIsRefused) {
  const auto refused = [this](std::uint64_t offset, Bytes size) {
    const bool taken = space_.AllocateAt(Weights("m"), offset, size);
    EXPECT_EQ(space_.use().free, kSpace) << offset << ", " << size.count();
    return !taken;
  };
  EXPECT_TRUE(refused(1, KiB(16)));
  EXPECT_TRUE(refused(kSpace.count(), Bytes(0)));
  EXPECT_TRUE(refused(kSpace.count() - 256, KiB(1)));
  EXPECT_TRUE(refused(~std::uint64_t{0}, Bytes(1)));
  EXPECT_TRUE(refused(0, kSpace + Bytes(1)));
  EXPECT_TRUE(refused(256, Bytes(~std::uint64_t{0})));
  EXPECT_TRUE(refused(MiB(1).count() - 256, Bytes(512))) << "it would cross two buddy partitions";
}

TEST_F(PartitionSpaceTest, RunsDoNotSettleAmongWeights) {
  Take(Weights("a"), KiB(1024 + 512));
  const std::uint64_t run = Take(ForRun("a"), KiB(512));
  const std::uint64_t weights = Take(Weights("b"), KiB(512));
  EXPECT_EQ(weights / MiB(1).count(), 1u) << "only the rest of the partition that model a left was used";
  EXPECT_NE(run / MiB(1).count(), 1u);
}

TEST_F(PartitionSpaceTest, ButNothingThatFitsIsRefused) {
  std::vector<std::uint64_t> ranges;
  for (int i = 0; i < 128; ++i) ranges.push_back(Take(Weights("a"), KiB(768)));
  EXPECT_EQ(space_.free_partitions(), 32u) << "four ranges of 768 KiB share three partitions";
  while (space_.free_partitions() > 0) Take(Weights("b"), MiB(1));
  ASSERT_TRUE(space_.Free(ranges[0]));
  EXPECT_TRUE(space_.Allocate(ForRun("c"), KiB(512)).has_value())
      << "the run's range lies among weights when there is no other place";
  EXPECT_TRUE(space_.Allocate(ForRun("c"), Bytes(1000)).has_value())
      << "the run gets a whole block when there is no other place";
}

TEST_F(PartitionSpaceTest, ARangeMayCrossPartitions) {
  const std::uint64_t big = Take(Weights("a"), MiB(100) + KiB(16));
  EXPECT_EQ(*space_.Occupied(big), MiB(100) + KiB(16));
  EXPECT_EQ(space_.use().largest, MiB(28) - KiB(16));
  EXPECT_TRUE(space_.Free(big));
  EXPECT_EQ(space_.use().largest, kSpace);
}

TEST_F(PartitionSpaceTest, OddSizesCostNoMoreThanABlock) {
  Random random(5);
  Bytes asked;
  std::uint64_t ranges = 0;
  for (; asked < MiB(60); ++ranges) {
    const Bytes size(random.Below(MiB(1).count()) + 1);
    Take(Weights("m" + std::to_string(ranges % 9)), size);
    asked += size;
  }
  const Bytes used = kSpace - space_.use().free;
  EXPECT_LT((used - asked).count(), ranges * KiB(16).count());
  EXPECT_LT(static_cast<double>((used - asked).count()), 0.06 * static_cast<double>(asked.count()));
}

// Allocations and frees go on until memory is full of holes; then moves mend it without touching pinned
// ranges.
class ConsolidationTest : public PartitionSpaceTest {
 protected:
  void Fill(std::uint64_t seed) {
    Random random(seed);
    for (;;) {
      const Bytes size = KiB(64) * (1 + random.Below(40)) + Bytes(random.Below(2) * 999);
      const std::string digest = "m" + std::to_string(random.Below(1000));
      const auto offset = space_.Allocate(Weights(digest), size);
      if (!offset) break;
      held_.push_back(*offset);
    }
    std::erase_if(held_, [&](std::uint64_t offset) { return random.Below(2) == 0 && space_.Free(offset); });
  }
  // Carries the moves out; returns their bytes.
  Bytes Mend(Bytes budget, const std::function<bool(std::uint64_t)>& movable) {
    Bytes moved;
    for (const PartitionSpace::Move& move : space_.Consolidate(movable, budget)) {
      EXPECT_TRUE(movable(move.from));
      EXPECT_TRUE(move.to + move.size.count() <= move.from || move.from + move.size.count() <= move.to);
      EXPECT_TRUE(space_.Free(move.from));
      std::ranges::replace(held_, move.from, move.to);
      moved += move.size;
    }
    return moved;
  }
  std::vector<std::uint64_t> held_;
};

TEST_F(ConsolidationTest, FreeMemoryHangsTogetherAgain) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    Fill(seed);
    const MemoryUse before = space_.use();
    const std::size_t free_partitions = space_.free_partitions();
    int rounds = 0;
    while (Mend(kSpace, [](std::uint64_t) { return true; }) > Bytes(0)) ASSERT_LT(++rounds, 100);
    EXPECT_EQ(space_.use().free, before.free);
    EXPECT_GT(space_.use().largest.count(), 2 * before.largest.count());
    EXPECT_GT(space_.free_partitions(), free_partitions);
    EXPECT_GT(space_.use().largest.count(), space_.use().free.count() / 2);
    for (const std::uint64_t offset : held_) ASSERT_TRUE(space_.Free(offset));
    held_.clear();
    EXPECT_EQ(space_.use().largest, kSpace);
  }
}

TEST_F(ConsolidationTest, WhatIsPinnedStaysAndTheBudgetHolds) {
  Fill(7);
  EXPECT_TRUE(space_.Consolidate([](std::uint64_t) { return false; }, kSpace).empty());
  const std::uint64_t pinned = held_[held_.size() / 2];
  for (int i = 0; i < 5; ++i) {
    EXPECT_LE(Mend(MiB(4), [&](std::uint64_t offset) { return offset != pinned; }), MiB(4));
  }
  EXPECT_TRUE(space_.Free(pinned));
}

TEST_F(ConsolidationTest, AMoveThatWasNotCarriedOutIsUndone) {
  Fill(9);
  const MemoryUse before = space_.use();
  const auto moves = space_.Consolidate([](std::uint64_t) { return true; }, MiB(8));
  ASSERT_FALSE(moves.empty());
  EXPECT_LT(space_.use().free, before.free);
  for (const auto& move : moves) EXPECT_TRUE(space_.Free(move.to));
  EXPECT_EQ(space_.use().free, before.free);
}

TEST_F(ConsolidationTest, SmallRangesLeaveSparsePartitions) {
  std::vector<std::uint64_t> small;
  for (int i = 0; i < 40; ++i) small.push_back(Take(Weights("m" + std::to_string(i)), Bytes(100'000)));
  for (std::size_t i = 0; i < small.size(); ++i) {
    if (i % 4 == 0) {
      held_.push_back(small[i]);
    } else {
      ASSERT_TRUE(space_.Free(small[i]));
    }
  }
  const std::size_t before = space_.free_partitions();
  while (Mend(kSpace, [](std::uint64_t) { return true; }) > Bytes(0)) continue;
  EXPECT_GT(space_.free_partitions(), before);
}

}  // namespace
}  // namespace troupe::gpu

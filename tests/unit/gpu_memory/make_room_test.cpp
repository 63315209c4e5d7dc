// Room for a large range where free memory is scattered: the cheapest place is vacated, and nothing else
// moves.
#include <algorithm>
#include <vector>

#include "base/random.hpp"
#include "gpu/memory/partition_space.hpp"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

constexpr Bytes kMemory = MiB(128);  // 128 partitions of 1 MiB, blocks of 16 KiB

class MakeRoomTest : public testing::Test {
 protected:
  static MemoryUser Weights(const std::string& digest) { return {MemoryUser::Kind::kWeights, digest}; }
  std::uint64_t Take(const std::string& digest, Bytes size) {
    const auto offset = space_.Allocate(Weights(digest), size);
    EXPECT_TRUE(offset.has_value());
    return offset.value_or(0);
  }
  // Frees the ranges from which the moves come; returns their bytes.
  Bytes CarryOut(const std::vector<PartitionSpace::Move>& moves) {
    Bytes moved;
    for (const auto& move : moves) {
      EXPECT_TRUE(move.to + move.size.count() <= move.from || move.from + move.size.count() <= move.to);
      EXPECT_TRUE(space_.Free(move.from));
      moved += *space_.Occupied(move.to);
      std::ranges::replace(held_, move.from, move.to);
    }
    return moved;
  }
  static bool Anything(std::uint64_t) { return true; }

  PartitionSpace space_{kMemory};
  std::vector<std::uint64_t> held_;
};

TEST_F(MakeRoomTest, TheLeastThatIsInTheWayMoves) {
  // Ranges alternate between large and small; then both sides of one small range are freed, and one large
  // range elsewhere.
  std::vector<std::uint64_t> large, small;
  for (int i = 0; i < 14; ++i) {
    large.push_back(Take("large", MiB(8)));
    small.push_back(Take("small", MiB(1)));
  }
  Take("rest", space_.use().largest);
  for (const int i : {2, 3, 8}) ASSERT_TRUE(space_.Free(large[static_cast<std::size_t>(i)]));
  ASSERT_FALSE(space_.Allocate(Weights("m"), MiB(16)).has_value());
  const auto moves = space_.MakeRoom(MiB(16), Anything);
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].from, small[2]) << "the small range lies between two free places";
  CarryOut(moves);
  EXPECT_TRUE(space_.Allocate(Weights("m"), MiB(16)).has_value());
}

TEST_F(MakeRoomTest, WhatIsInUseStaysAndNoMoreMovesThanComes) {
  std::vector<std::uint64_t> all;
  for (int i = 0; i < 32; ++i) all.push_back(Take("m", MiB(4)));
  for (std::size_t i = 0; i < all.size(); i += 2) ASSERT_TRUE(space_.Free(all[i]));
  const auto before = space_.use();
  EXPECT_TRUE(space_.MakeRoom(MiB(8), [](std::uint64_t) { return false; }).empty());
  EXPECT_TRUE(space_.MakeRoom(MiB(65), Anything).empty()) << "the size is more than is free";
  EXPECT_EQ(space_.use().free, before.free);
  EXPECT_EQ(space_.use().largest, before.largest);
  const auto only = space_.MakeRoom(MiB(8), [&](std::uint64_t offset) { return offset == all[7]; });
  ASSERT_EQ(only.size(), 1u);
  EXPECT_EQ(only[0].from, all[7]);
  // Moves that are not carried out leave everything as it was.
  ASSERT_TRUE(space_.Free(only[0].to));
  EXPECT_EQ(space_.use().free, before.free);
  EXPECT_EQ(space_.use().largest, before.largest);
}

TEST_F(MakeRoomTest, AfterItsMovesTheRangeFits) {
  Random random(11);
  int made = 0;
  for (int round = 0; round < 300; ++round) {
    while (true) {
      const Bytes size = KiB(64) * (1 + random.Below(60)) + Bytes(random.Below(2) * 999);
      const auto offset = space_.Allocate(Weights("m" + std::to_string(random.Below(50))), size);
      if (!offset) break;
      held_.push_back(*offset);
    }
    std::erase_if(held_, [&](std::uint64_t offset) { return random.Below(4) == 0 && space_.Free(offset); });
    const MemoryUse before = space_.use();
    const Bytes size = before.largest + Bytes(random.Below((before.free - before.largest).count() + 1));
    if (space_.Allocate(Weights("large"), size)) continue;
    const auto movable = [](std::uint64_t offset) { return offset / KiB(16).count() % 10 != 0; };
    const auto moves = space_.MakeRoom(size, movable);
    for (const auto& move : moves) EXPECT_TRUE(movable(move.from));
    if (moves.empty()) continue;
    EXPECT_LE(CarryOut(moves), size + KiB(16));
    EXPECT_EQ(space_.use().free, before.free);
    const auto large = space_.Allocate(Weights("large"), size);
    ASSERT_TRUE(large.has_value()) << "round " << round;
    ASSERT_TRUE(space_.Free(*large));
    ++made;
  }
  EXPECT_GT(made, 30);
  for (const std::uint64_t offset : held_) ASSERT_TRUE(space_.Free(offset));
}

}  // namespace
}  // namespace troupe::gpu

// No two buffers that live at once overlap, and the block is no larger than their sum.
#include "gpu/engine/memory_planner.hpp"

#include <gtest/gtest.h>

#include <random>

namespace troupe::gpu {
namespace {

TEST(MemoryPlanner, ReusesWhatIsDead) {
  const BufferLife chain[] = {{Bytes(100), 0, 1}, {Bytes(100), 1, 2}, {Bytes(100), 2, 3}, {Bytes(100), 3, 4}};
  EXPECT_EQ(PlaceBuffers(chain).size, Bytes(256));
}

TEST(MemoryPlanner, CountsWhatLivesDuringEachStep) {
  const BufferLife buffers[] = {{Bytes(64), 0, 1}, {Bytes(100), 1, 2}, {Bytes(0), 0, 9}, {Bytes(1), 3, 9}};
  EXPECT_EQ(LiveBytes(buffers, 4), (std::vector{Bytes(64), Bytes(64 + 128), Bytes(128), Bytes(64)}));
  EXPECT_TRUE(LiveBytes({}, 0).empty());
  MemoryPlacement placement;
  placement.offsets = {128, 0, 64};
  const std::vector<BufferLife> lives = {{Bytes(64), 0, 1}, {Bytes(10), 2, 3}, {Bytes(64), 1, 2}};
  EXPECT_EQ(Extents(lives, placement, 4), (std::vector{Bytes(192), Bytes(192), Bytes(128), Bytes(64)}));
  EXPECT_TRUE(Extents({}, {}, 0).empty());
}

TEST(MemoryPlanner, EmptyBuffersTakeNothing) {
  const BufferLife buffers[] = {{Bytes(0), 0, 9}, {Bytes(0), 3, 4}};
  EXPECT_EQ(PlaceBuffers(buffers).size, Bytes(0));
  EXPECT_EQ(PlaceBuffers({}).size, Bytes(0));
}

TEST(MemoryPlanner, RandomLivesNeverOverlap) {
  std::mt19937 random(11);
  const auto up_to = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n)(random); };
  for (int round = 0; round < 200; ++round) {
    std::vector<BufferLife> buffers(1 + up_to(60));
    Bytes sum;
    for (BufferLife& buffer : buffers) {
      buffer.size = Bytes(up_to(5000));
      buffer.first = up_to(40);
      buffer.last = buffer.first + up_to(12);
      sum += AlignUp(buffer.size, Bytes(64));
    }
    const MemoryPlacement placement = PlaceBuffers(buffers);
    ASSERT_LE(placement.size, sum);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const std::uint64_t begin = placement.offsets[i], end = begin + buffers[i].size.count();
      ASSERT_EQ(begin % 64, 0U);
      ASSERT_LE(end, placement.size.count());
      for (std::size_t j = 0; j < i; ++j) {
        if (buffers[i].size == Bytes(0) || buffers[j].size == Bytes(0)) continue;
        const bool together = buffers[i].first <= buffers[j].last && buffers[j].first <= buffers[i].last;
        const bool apart =
            end <= placement.offsets[j] || placement.offsets[j] + buffers[j].size.count() <= begin;
        ASSERT_TRUE(!together || apart) << "round " << round << ", buffers " << i << " and " << j;
      }
    }
  }
}

}  // namespace
}  // namespace troupe::gpu

#include "gpu/memory/run_pool.hpp"

#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

using Pool = MemoryPolicy::Pool;
constexpr Duration kMillisecond = std::chrono::milliseconds(1);

std::shared_ptr<const MemoryProfile> Profile(std::vector<Bytes> steps) {
  const auto run_time = kMillisecond * static_cast<std::int64_t>(steps.size());
  return std::make_shared<const MemoryProfile>(std::move(steps), run_time);
}

TEST(RunPool, StaticKeepsTheLargestPlanOfEachResidentModel) {
  RunPool pool(Pool::kStatic, kMillisecond);
  pool.Planned("a", Bytes(10));
  EXPECT_EQ(pool.size(), Bytes(0)) << "the model is not resident";
  pool.Arrived("a");
  pool.Planned("a", Bytes(30));  // a larger batch
  pool.Planned("a", Bytes(20));
  pool.Arrived("b");
  pool.Planned("b", Bytes(5));
  EXPECT_EQ(pool.size(), Bytes(35));
  pool.Took("a", Bytes(30));
  EXPECT_EQ(pool.size(), Bytes(35));
  EXPECT_EQ(pool.set_aside(), Bytes(5));
  pool.Took("a", Bytes(30));  // two runs of it at once
  EXPECT_EQ(pool.size(), Bytes(65));
  pool.GaveBack("a", Bytes(30));
  pool.GaveBack("a", Bytes(30));
  pool.Left("a");
  EXPECT_EQ(pool.size(), Bytes(5));
  EXPECT_EQ(pool.peak(), Bytes(65));
}

TEST(RunPool, FineKeepsWhatItGrewTo) {
  RunPool pool(Pool::kHighWater, kMillisecond);
  pool.Arrived("a");
  pool.Arrived("b");
  pool.Took("a", Bytes(10));
  pool.GaveBack("a", Bytes(10));
  pool.Took("b", Bytes(7));
  EXPECT_EQ(pool.size(), Bytes(17));
  EXPECT_EQ(pool.held(), Bytes(7));
  pool.GaveBack("b", Bytes(7));
  EXPECT_EQ(pool.size(), Bytes(17));
  pool.Left("a");
  EXPECT_EQ(pool.size(), Bytes(7));
  pool.Arrived("a");
  EXPECT_EQ(pool.size(), Bytes(7)) << "the need from before the eviction is forgotten";
}

// Algorithm 1 of StreamBox (004).
TEST(RunPool, ResilientFollowsWhatComesNext) {
  RunPool pool(Pool::kPredicted, kMillisecond);
  const Time start{};
  const auto run = pool.Began(Profile({Bytes(10), Bytes(10), Bytes(80), Bytes(5), Bytes(5)}), start);
  EXPECT_EQ(pool.size(), Bytes(10)) << "the first step has its memory before the next look";
  pool.Follow(start);
  EXPECT_EQ(pool.size(), Bytes(10)) << "one millisecond ahead is the second step";
  pool.Reached(run, 1, start + kMillisecond);
  pool.Follow(start + kMillisecond);
  EXPECT_EQ(pool.size(), Bytes(80));
  pool.Reached(run, 3, start + 3 * kMillisecond);
  pool.Follow(start + 3 * kMillisecond);
  EXPECT_EQ(pool.size(), Bytes(5)) << "the pool shrinks";
  pool.Ended(run);
  pool.Follow(start + 5 * kMillisecond);
  EXPECT_EQ(pool.size(), Bytes(0));
  EXPECT_EQ(pool.peak(), Bytes(80));
}

TEST(RunPool, ARunThatIsLateKeepsWhatItHasNotPassed) {
  RunPool pool(Pool::kPredicted, kMillisecond);
  const Time start{};
  pool.Began(Profile({Bytes(50), Bytes(1), Bytes(1)}), start);
  pool.Follow(start + 100 * kMillisecond);
  EXPECT_EQ(pool.size(), Bytes(50)) << "the end of the first step was not reported";
}

TEST(RunPool, TheNeedsOfRunsAddUpAndWhatIsHeldIsTheLeast) {
  RunPool pool(Pool::kPredicted, kMillisecond);
  const Time start{};
  pool.Began(Profile({Bytes(10)}), start);
  pool.Began(Profile({Bytes(20)}), start);
  pool.Follow(start);
  EXPECT_EQ(pool.size(), Bytes(30));
  pool.Took("a", Bytes(100));
  EXPECT_EQ(pool.size(), Bytes(100));
  EXPECT_EQ(pool.set_aside(), Bytes(0));
  pool.GaveBack("a", Bytes(100));
  EXPECT_EQ(pool.size(), Bytes(30));
}

}  // namespace
}  // namespace troupe::gpu

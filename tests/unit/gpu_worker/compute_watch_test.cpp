#include "gpu/worker/compute_watch.hpp"

#include "gtest/gtest.h"

namespace troupe::gpu::test {
namespace {

Time At(int second) {
  return Time(std::chrono::seconds(second));
}

TEST(ComputeWatch, ShowsTheOneThatStandsStillForLongest) {
  ComputeWatch watch;
  using Lanes = std::vector<ComputeWatch::LaneState>;
  const auto order = [&](const Lanes& lanes, int second) { return watch.Observe(lanes, At(second)).order; };
  EXPECT_EQ(order({{true, 1, 10}, {true, 2, 10}, {false, 0, 10}}, 0), 1u);
  EXPECT_EQ(order({{true, 1, 11}, {true, 2, 10}, {true, 3, 11}}, 1), 2u) << "the engine has not moved since";
  EXPECT_EQ(order({{true, 1, 11}, {true, 2, 10}, {true, 3, 12}}, 2), 2u)
      << "the engine has stood still for longer than engine 1";
  EXPECT_EQ(order({{true, 1, 11}, {true, 2, 11}, {true, 3, 13}}, 3), 1u);
  EXPECT_EQ(order({{true, 4, 11}, {true, 2, 12}, {true, 3, 13}}, 4), 3u) << "another order is progress";
  EXPECT_EQ(order({{true, 4, 11}, {false, 2, 12}, {false, 3, 13}}, 9), 4u)
      << "an idle engine never stands still";
}

TEST(ComputeWatch, NothingIsShownOfNothing) {
  ComputeWatch watch;
  EXPECT_FALSE(watch.Observe({}, At(0)).busy);
  const std::vector<ComputeWatch::LaneState> idle = {{false, 3, 5}};
  EXPECT_FALSE(watch.Observe(idle, At(1)).busy);
}

}  // namespace
}  // namespace troupe::gpu::test

#include "gpu/cuda/launch_groups.hpp"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::gpu::cuda {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

// A group may take 2^26 ns, 67 ms, of this limit.
constexpr Duration kLimit = milliseconds(1100);

TEST(LaunchGroups, AnUnknownPlanHasAGroupForEachFewSteps) {
  LaunchGroups groups(10);
  EXPECT_THAT(groups.Ends(0, kLimit), ElementsAre(4, 8, 10));
  EXPECT_THAT(LaunchGroups(4).Ends(0, kLimit), ElementsAre(4));
  EXPECT_THAT(LaunchGroups(1).Ends(0, kLimit), ElementsAre(1));
}

TEST(LaunchGroups, AQuickPlanIsOneGroup) {
  LaunchGroups groups(10);
  groups.Learn(0, 0, 4, milliseconds(10));
  EXPECT_THAT(groups.Ends(0, kLimit), ElementsAre(4, 8, 10)) << "the times of the other groups are not known";
  groups.Learn(0, 4, 8, milliseconds(10));
  groups.Learn(0, 8, 10, milliseconds(5));
  EXPECT_THAT(groups.Ends(0, kLimit), ElementsAre(10));
  EXPECT_THAT(groups.Ends(24, kLimit), ElementsAre(4, 8, 10)) << "on fewer SMs the plan may be slow";
  EXPECT_THAT(groups.Ends(0, milliseconds(300)), ElementsAre(4, 10))
      << "the plan takes a larger part of a shorter limit";
}

TEST(LaunchGroups, ASlowPlanHasGroupsOfAPartOfItsLimit) {
  LaunchGroups groups(32);
  for (std::size_t step = 0; step < 32; step += 4)
    groups.Learn(0, step, step + 4, step == 16 ? seconds(3) : milliseconds(30));
  EXPECT_THAT(groups.Ends(0, kLimit), ElementsAre(8, 16, 20, 28, 32));
  EXPECT_THAT(groups.Ends(0, hours(1)), ElementsAre(32));
}

TEST(LaunchGroups, GroupsStayUntilOneTakesTwiceItsPart) {
  LaunchGroups groups(16);
  for (std::size_t step = 0; step < 16; step += 4) groups.Learn(0, step, step + 4, milliseconds(16));
  const auto known = groups.Ends(0, kLimit);
  EXPECT_THAT(known, ElementsAre(16));
  groups.Learn(0, 0, 16, milliseconds(130));
  EXPECT_EQ(groups.Ends(0, kLimit), known) << "graphs were recorded for these groups";
  groups.Learn(0, 0, 16, milliseconds(300));
  EXPECT_THAT(groups.Ends(0, kLimit), ElementsAre(4, 8, 12, 16));
}

TEST(LaunchGroups, ShorterTimesAreBelievedLittleByLittle) {
  LaunchGroups groups(8);
  groups.Learn(0, 0, 4, milliseconds(400));
  groups.Learn(0, 4, 8, milliseconds(400));
  groups.Learn(0, 0, 8, milliseconds(1));
  EXPECT_THAT(groups.Ends(0, kLimit), ElementsAre(4, 8));
  for (int run = 0; run < 30; ++run) groups.Learn(0, 0, 8, milliseconds(1));
  EXPECT_THAT(LaunchGroups(groups).Ends(0, kLimit), ElementsAre(4, 8)) << "groups that fit their limit stay";
  EXPECT_THAT(groups.Ends(0, 2 * kLimit), ElementsAre(8));
}

}  // namespace
}  // namespace troupe::gpu::cuda

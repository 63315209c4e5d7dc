#include "cluster/runs/run_owners.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::cluster {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The actor with number seven in each of three processes.
constexpr Runner kOne{7, 1}, kTwo{7, 2}, kOther{7, 3};

TEST(RunOwners, WaitersOfTwoGatewaysWithTheSameNumberAreBothAnswered) {
  RunOwners owners(2);
  ASSERT_TRUE(owners.Await("run", kOne, 1).ok());
  ASSERT_TRUE(owners.Await("run", kTwo, 2).ok());
  ASSERT_TRUE(owners.Await("run", kOne, 3).ok()) << "an actor that asks again waits once";
  EXPECT_THAT(owners.TakeDropped(), ElementsAre(1));
  EXPECT_TRUE(absl::IsResourceExhausted(owners.Await("run", kOther, 4)));
  EXPECT_THAT(owners.End("run"), ElementsAre(3, 2));
  EXPECT_THAT(owners.End("run"), IsEmpty());
}

TEST(RunOwners, OnlyTheActorThatIsGoneWaitsNoMore) {
  RunOwners owners(2);
  ASSERT_TRUE(owners.Await("run", kOne, 1).ok());
  ASSERT_TRUE(owners.Await("run", kTwo, 2).ok());
  EXPECT_THAT(owners.Remove(kOther), IsEmpty());
  owners.Remove(kOne);
  EXPECT_THAT(owners.TakeDropped(), ElementsAre(1));
  EXPECT_THAT(owners.End("run"), ElementsAre(2));
}

TEST(RunOwners, AClaimThatWasNotStoredLeavesTheRunToItsFormerOwner) {
  RunOwners owners;
  owners.Add("run", kOne);
  owners.Release("run", Time());
  EXPECT_EQ(owners.Former("run"), kOne);
  owners.Reserve("run", kTwo);
  EXPECT_EQ(owners.Find("run"), kTwo);
  owners.Withdraw("run", Time());
  EXPECT_FALSE(owners.Find("run").exists());
  EXPECT_EQ(owners.Former("run"), kOne);
  owners.Reattach("run");
  EXPECT_EQ(owners.Find("run"), kOne);
}

}  // namespace
}  // namespace troupe::cluster

#include "cluster/provisioning.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace troupe::cluster::provisioning_test {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr Time kStart = Time(seconds(1000));
using Names = std::vector<std::string>;

ProvisionedNode Node(const std::string& name, std::uint64_t requests,
                     proto::MemberState state = proto::MEMBER_ALIVE, std::uint32_t gpus = 2) {
  return {.name = name, .state = state, .gpus = gpus, .requests = requests};
}

class ProvisioningTest : public testing::Test {
 protected:
  Names At(Duration at, const std::vector<ProvisionedNode>& nodes) {
    under_way_ = provisioning_.Decide(nodes, kStart + at);
    Names names;
    for (const auto& action : under_way_) names.push_back(Describe(action));
    return names;
  }
  // All operations that the last decision began.
  Duration End(Duration at, const absl::Status& status = absl::OkStatus()) {
    Duration pause{};
    for (const auto& action : under_way_) pause = provisioning_.Ended(action, status, kStart + at);
    return pause;
  }
  ProvisioningLimits limits_ = {.min_nodes = 1, .max_nodes = 3};
  Provisioning provisioning_{limits_};
  std::vector<ProvisionAction> under_way_;
};

TEST_F(ProvisioningTest, ADeadNodeIsReplacedOnceAfterAWhile) {
  const std::vector<ProvisionedNode> nodes = {Node("a", 4), Node("b", 0, proto::MEMBER_DEAD)};
  EXPECT_EQ(At(seconds(0), nodes), Names{});
  EXPECT_EQ(At(seconds(29), nodes), Names{}) << "the dead node may come back by itself";
  EXPECT_EQ(At(seconds(30), nodes), Names{"replace b"});
  const auto asked = under_way_;
  EXPECT_EQ(At(seconds(31), nodes), Names{}) << "a machine is ordered already";
  under_way_ = asked;
  EXPECT_EQ(End(seconds(40)), Duration::zero());
  EXPECT_EQ(At(minutes(10), nodes), Names{}) << "one machine is ordered for each death";
  EXPECT_EQ(At(minutes(11), {Node("a", 4), Node("b", 4)}), Names{});
  EXPECT_EQ(At(minutes(12), nodes), Names{}) << "the death of another machine waits for its own time";
  EXPECT_EQ(At(minutes(13), nodes), Names{"replace b"});
}

TEST_F(ProvisioningTest, ANodeThatComesBackInTimeOrLeftInPeaceIsNotReplaced) {
  EXPECT_EQ(At(seconds(0), {Node("a", 4), Node("b", 0, proto::MEMBER_DEAD)}), Names{});
  EXPECT_EQ(At(seconds(20), {Node("a", 4), Node("b", 4)}), Names{});
  EXPECT_EQ(At(seconds(40), {Node("a", 4), Node("b", 0, proto::MEMBER_DEAD)}), Names{});
  EXPECT_EQ(At(minutes(5), {Node("a", 4), Node("b", 0, proto::MEMBER_LEFT)}), Names{});
}

TEST_F(ProvisioningTest, WhatFailsIsTriedAgainLaterAndLater) {
  const std::vector<ProvisionedNode> nodes = {Node("a", 4), Node("b", 0, proto::MEMBER_DEAD)};
  EXPECT_EQ(At(seconds(0), nodes), Names{});
  Duration at = seconds(30);
  for (const int pause : {10, 20, 40, 80}) {
    ASSERT_EQ(At(at, nodes), Names{"replace b"});
    EXPECT_EQ(End(at, absl::UnavailableError("no machine")), seconds(pause));
    EXPECT_EQ(At(at + seconds(pause) - Duration(1), nodes), Names{});
    at += seconds(pause);
  }
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(At(at, nodes), Names{"replace b"});
    at += End(at, absl::UnavailableError("no machine"));
  }
  EXPECT_EQ(End(at, absl::UnavailableError("no machine")), limits_.longest_retry);
}

TEST_F(ProvisioningTest, LoadAddsUpToTheLimitAndNotForAMomentOfIt) {
  EXPECT_EQ(At(seconds(0), {Node("a", 20)}), Names{});
  EXPECT_EQ(At(seconds(30), {Node("a", 4)}), Names{}) << "the load went down again";
  EXPECT_EQ(At(seconds(40), {Node("a", 20)}), Names{});
  EXPECT_EQ(At(seconds(99), {Node("a", 20)}), Names{});
  EXPECT_EQ(At(seconds(100), {Node("a", 20)}), Names{"add"});
  End(seconds(110));
  EXPECT_EQ(At(seconds(120), {Node("a", 20), Node("b", 10)}), Names{});
  EXPECT_EQ(At(seconds(229), {Node("a", 20), Node("b", 10)}), Names{})
      << "the new machine first has time to take load";
  EXPECT_EQ(At(seconds(230), {Node("a", 20), Node("b", 10)}), Names{"add"});
  End(seconds(240));
  const std::vector<ProvisionedNode> three = {Node("a", 20), Node("b", 20), Node("c", 20)};
  EXPECT_EQ(At(minutes(20), three), Names{});
  EXPECT_EQ(At(minutes(30), three), Names{}) << "three machines are the limit";
}

TEST_F(ProvisioningTest, IdleNodesAreDrainedDownToTheLimitTheLeastBusyFirst) {
  const std::vector<ProvisionedNode> three = {Node("a", 1), Node("b", 0), Node("c", 1)};
  EXPECT_EQ(At(seconds(0), three), Names{});
  EXPECT_EQ(At(seconds(60), three), Names{"drain b"});
  End(seconds(61));
  const std::vector<ProvisionedNode> two = {Node("a", 1), Node("b", 0, proto::MEMBER_DRAINING), Node("c", 0)};
  EXPECT_EQ(At(seconds(100), two), Names{});
  EXPECT_EQ(At(seconds(300), two), Names{"drain c"});
  End(seconds(301));
  const std::vector<ProvisionedNode> one = {Node("a", 0), Node("c", 0, proto::MEMBER_LEFT)};
  EXPECT_EQ(At(minutes(20), one), Names{});
  EXPECT_EQ(At(minutes(30), one), Names{}) << "the last machine stays";
}

TEST_F(ProvisioningTest, ANodeThatHasAFunctionsStateIsNotDrained) {
  auto nodes = std::vector<ProvisionedNode>{Node("a", 1), Node("b", 0)};
  nodes[1].stays = true;
  EXPECT_EQ(At(seconds(0), nodes), Names{});
  EXPECT_EQ(At(seconds(60), nodes), Names{"drain a"});
  nodes[0].stays = true;
  Provisioning other(limits_);
  EXPECT_TRUE(other.Decide(nodes, kStart).empty());
  EXPECT_TRUE(other.Decide(nodes, kStart + minutes(5)).empty());
}

TEST_F(ProvisioningTest, BetweenTheMarksNothingHappensAndWithoutAMaximumNothingByLoad) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(At(minutes(i), {Node("a", 4), Node("b", 4)}), Names{});
  Provisioning only_replaces({});
  for (const std::uint64_t requests : {0U, 100U})
    for (int i = 0; i < 100; ++i)
      EXPECT_TRUE(
          only_replaces.Decide({Node("a", requests), Node("b", requests)}, kStart + minutes(i)).empty());
}

TEST_F(ProvisioningTest, FewerThanTheLeastAreFilledUp) {
  Provisioning provisioning({.min_nodes = 2, .max_nodes = 3});
  const auto actions = provisioning.Decide({Node("a", 4)}, kStart);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(Describe(actions[0]), "add");
}

TEST(ProvisioningLimitsTest, ContradictionsAreNamed) {
  EXPECT_TRUE(CheckProvisioning({}).ok());
  EXPECT_TRUE(CheckProvisioning({.min_nodes = 2, .max_nodes = 2}).ok());
  EXPECT_FALSE(CheckProvisioning({.min_nodes = 3, .max_nodes = 2}).ok());
  EXPECT_FALSE(CheckProvisioning({.add_above = 1, .drain_below = 1}).ok());
}

}  // namespace
}  // namespace troupe::cluster::provisioning_test

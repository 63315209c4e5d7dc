#include "cluster/ownership/ownership_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.hpp"
#include "proto/gpu_place.hpp"
#include "tests/draws.hpp"
#include "tests/unit/cluster/records.hpp"

namespace troupe::cluster {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

class OwnershipPlanTest : public ::testing::Test {
 protected:
  void Join(const std::string& node, std::uint32_t gpus = 1, Bytes memory = GiB(1)) {
    proto::JoinRequest request;
    auto& member = *request.mutable_member();
    member.set_name(node);
    member.set_kind(proto::MEMBER_NODE);
    member.set_address(node);
    for (std::uint32_t i = 0; i < gpus; ++i) {
      auto& gpu = *member.add_gpus();
      gpu.set_index(i);
      gpu.set_memory_bytes(memory.count());
      gpu.set_state("ready");
    }
    ASSERT_TRUE(members_.Join(request, now_).ok());
    for (const auto& [digest, use] : functions_.models()) copies_.Adopted(digest, node);
  }
  // It has copies on all nodes.
  void Add(const std::string& name, std::uint32_t sms, std::uint32_t quota, std::uint32_t instances = 1) {
    auto record = FunctionOf(name, MiB(1));
    record.mutable_key()->set_version("1");
    record.set_loaded(true);
    record.mutable_sharing()->set_sm_partition(sms);
    record.mutable_sharing()->set_quota_request(quota);
    record.mutable_sharing()->set_quota_limit(quota);
    record.mutable_sharing()->set_max_instances(instances);
    Put(record);
  }
  void Put(const proto::FunctionRecord& record) {
    functions_.Put(record);
    for (const auto& [node, member] : members_.members()) copies_.Adopted(record.model_digest(), node);
  }
  proto::FunctionRecord Record(const std::string& name) {
    proto::FunctionKey key;
    key.set_name(name);
    return *functions_.Find(key);
  }
  // Carries the plan out; what each function owns then, as "node/gpu".
  OwnershipPlan Plan() {
    auto plan = PlanOwnership(functions_, members_, copies_);
    for (const auto& command : plan.commands) {
      auto record = *functions_.Find(command.key());
      *record.mutable_places() = command.places();
      functions_.Put(record);
    }
    Check();
    return plan;
  }
  std::vector<std::string> Owned(const std::string& name) {
    std::vector<std::string> owned;
    const auto record = Record(name);
    for (const auto& place : record.places())
      owned.push_back(place.node() + "/" + std::to_string(place.gpu()));
    return owned;
  }
  void Leave(const std::string& node) {
    proto::LeaveRequest leave;
    leave.set_name(node);
    leave.set_epoch(members_.Find(node)->record.epoch());
    ASSERT_TRUE(members_.Leave(leave, now_).ok());
    copies_.NodeGone(node);
  }
  // No two rectangles of a GPU overlap, none is larger than the GPU, each is what its function asks for.
  void Check() {
    std::map<std::pair<std::string, std::uint32_t>, std::vector<proto::GpuPlace>> by_gpu;
    functions_.ForEach([&](const proto::FunctionRecord& record) {
      for (const auto& place : record.places()) {
        ASSERT_LE(place.left() + place.quota(), 100U);
        ASSERT_LE(place.bottom() + place.sms(), 100U);
        ASSERT_EQ(place.quota(), record.sharing().quota_request());
        ASSERT_EQ(place.sms(), record.sharing().sm_partition());
        ASSERT_NE(members_.Find(place.node()), nullptr);
        for (const auto& other : by_gpu[{place.node(), place.gpu()}]) {
          const bool apart = place.left() >= other.left() + other.quota() ||
                             other.left() >= place.left() + place.quota() ||
                             place.bottom() >= other.bottom() + other.sms() ||
                             other.bottom() >= place.bottom() + place.sms();
          ASSERT_TRUE(apart) << proto::Describe(place) << " overlaps " << proto::Describe(other);
        }
        by_gpu[{place.node(), place.gpu()}].push_back(place);
      }
    });
  }

  Time now_{seconds(100)};
  FunctionTable functions_;
  MembershipTable members_;
  HostCopies copies_{seconds(2)};
};

TEST_F(OwnershipPlanTest, AFunctionThatRequestsTimeOwnsItsRectangles) {
  Join("n1");
  Add("f", 24, 30, 3);
  Add("late", 24, 0);
  EXPECT_THAT(Plan().problems, IsEmpty());
  EXPECT_THAT(Owned("f"), ElementsAre("n1/0", "n1/0", "n1/0"));
  EXPECT_THAT(Owned("late"), IsEmpty());
  EXPECT_THAT(Plan().commands, IsEmpty()) << "nothing has changed";
}

TEST_F(OwnershipPlanTest, WhatDoesNotFitAnywhereIsBoundLateAndSaysWhy) {
  Join("n1");
  Add("a", 60, 60);
  Add("b", 60, 60);
  const auto plan = Plan();
  EXPECT_THAT(Owned("a"), SizeIs(1));
  EXPECT_THAT(Owned("b"), IsEmpty());
  ASSERT_TRUE(plan.problems.contains({"b", 1}));
  EXPECT_THAT(std::string(plan.problems.at({"b", 1}).message()), HasSubstr("it is bound late"));
  Join("n2");
  EXPECT_THAT(Plan().problems, IsEmpty());
  EXPECT_THAT(Owned("b"), ElementsAre("n2/0"));
}

TEST_F(OwnershipPlanTest, OnlyNodesWithACopyCount) {
  Join("n1");
  Join("n2");
  Add("f", 50, 50);
  copies_.Disowned(Record("f").model_digest(), "n1");
  Plan();
  EXPECT_THAT(Owned("f"), ElementsAre("n2/0"));
  copies_.Disowned(Record("f").model_digest(), "n2");
  const auto plan = Plan();
  EXPECT_THAT(Owned("f"), IsEmpty());
  EXPECT_TRUE(absl::IsUnavailable(plan.problems.at({"f", 1})));
}

TEST_F(OwnershipPlanTest, ALostNodesRectanglesMoveAndTheOthersStay) {
  Join("n1");
  Join("n2");
  Add("a", 100, 60);
  Add("b", 100, 60);
  Plan();
  const auto before = Owned("b");
  Leave(Owned("a")[0].substr(0, 2));
  const auto plan = Plan();
  EXPECT_EQ(Owned("b"), before);
  EXPECT_THAT(Owned("a"), IsEmpty()) << "there is no room for it beside b";
  EXPECT_THAT(plan.problems, SizeIs(1));
  Join("n3");
  Plan();
  EXPECT_THAT(Owned("a"), ElementsAre("n3/0"));
  EXPECT_EQ(Owned("b"), before);
}

TEST_F(OwnershipPlanTest, ADrainingNodeGivesItsRectanglesUpAndASuspectedOneKeepsThem) {
  Join("n1");
  Add("a", 50, 50);
  Plan();
  Join("n2");
  ASSERT_TRUE(members_.SetDraining("n1", true).ok());
  Plan();
  EXPECT_THAT(Owned("a"), ElementsAre("n2/0"));
  Add("b", 50, 50);
  static_cast<void>(members_.Tick(now_ + members_.limits().suspect_after));
  const auto plan = Plan();
  EXPECT_THAT(Owned("a"), ElementsAre("n2/0"));
  EXPECT_THAT(Owned("b"), IsEmpty()) << "a suspected node gets nothing new";
  EXPECT_TRUE(plan.problems.contains({"b", 1}));
}

TEST_F(OwnershipPlanTest, AnotherSizeStaysOnItsGpuIfItCan) {
  Join("n1", 2);
  Add("a", 24, 30);
  Add("b", 24, 30);
  Plan();
  const auto gpu = Owned("a");
  Add("a", 50, 60);  // as an update does, and the places stay in the record
  auto record = Record("a");
  record.clear_places();
  auto& place = *record.add_places();
  place.set_node("n1");
  place.set_gpu(0);
  place.set_quota(30);
  place.set_sms(24);
  functions_.Put(record);
  Plan();
  EXPECT_EQ(Owned("a"), gpu);
  EXPECT_EQ(Record("a").places(0).sms(), 50U);
}

TEST_F(OwnershipPlanTest, AFunctionThatAsksForNothingAnyMoreOwnsNothing) {
  Join("n1");
  Add("f", 24, 30);
  Add("g", 24, 30);
  Plan();
  auto record = Record("f");
  record.mutable_sharing()->clear_quota_request();
  functions_.Put(record);
  record = Record("g");
  record.set_loaded(false);
  functions_.Put(record);
  Plan();
  EXPECT_THAT(Owned("f"), IsEmpty());
  EXPECT_THAT(Owned("g"), IsEmpty());
  EXPECT_EQ(functions_.owners(), (std::set<FunctionVersion>{{"g", 1}}));
}

TEST_F(OwnershipPlanTest, AFunctionThatKeepsStateRunsWhereItsStateIs) {
  Join("n1");
  auto record = FunctionOf("s", MiB(1));
  record.mutable_key()->set_version("1");
  record.set_loaded(true);
  record.mutable_sharing()->set_quota_request(30);
  record.add_state()->set_input("s");
  Put(record);
  EXPECT_THAT(Plan().commands, IsEmpty());
}

TEST_F(OwnershipPlanTest, PlacesThatMakeNoSenseAreReplaced) {
  Join("n1");
  Add("f", 24, 30);
  auto record = Record("f");
  for (const auto& [gpu, left] : {std::pair(0U, 90U), std::pair(7U, 0U)}) {
    auto& place = *record.add_places();
    place.set_node("n1");
    place.set_gpu(gpu);
    place.set_left(left);
    place.set_quota(30);
    place.set_sms(24);
  }
  functions_.Put(record);
  Plan();
  EXPECT_THAT(Owned("f"), ElementsAre("n1/0"));
  EXPECT_EQ(Record("f").places(0).left(), 0U);
}

TEST_F(OwnershipPlanTest, MemoryIsTheThirdDimension) {
  Join("n1", 1, MiB(100));
  Add("a", 24, 30);
  Add("b", 24, 30);
  auto record = Record("b");
  record.mutable_sharing()->set_gpu_mem(MiB(100).count());
  functions_.Put(record);
  Plan();
  EXPECT_THAT(Owned("a"), SizeIs(1));
  EXPECT_THAT(Owned("b"), IsEmpty());
}

// Whatever comes and goes: no two rectangles overlap, and a second plan of the same world changes nothing.
TEST_F(OwnershipPlanTest, RandomWorldsAreConsistentAndSettle) {
  Random random(11);
  for (int step = 0; step < test::Draws(120); ++step) {
    const auto node = "n" + std::to_string(random.Below(4));
    const auto name = "f" + std::to_string(random.Below(8));
    switch (random.Below(4)) {
      case 0:
        if (members_.Find(node) == nullptr || members_.Find(node)->record.state() == proto::MEMBER_LEFT)
          Join(node, 2);
        break;
      case 1:
        if (const auto* member = members_.Find(node);
            member != nullptr && member->record.state() == proto::MEMBER_ALIVE && random.Below(3) == 0)
          Leave(node);
        break;
      default: {
        const auto sms = static_cast<std::uint32_t>(1 + random.Below(100));
        const auto quota = static_cast<std::uint32_t>(1 + random.Below(100));
        proto::FunctionKey key;
        key.set_name(name);
        const auto* before = functions_.Find(key);
        const auto places = before == nullptr ? proto::FunctionRecord() : *before;
        Add(name, sms, quota, static_cast<std::uint32_t>(1 + random.Below(3)));
        auto record = Record(name);
        *record.mutable_places() = places.places();
        functions_.Put(record);
      }
    }
    now_ += seconds(1);
    Plan();
    ASSERT_THAT(Plan().commands, IsEmpty()) << "step " << step;
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace troupe::cluster

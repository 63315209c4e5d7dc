// A member's session with the cluster manager, and what the session tells its daemon's log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "sim/network.hpp"
#include "sim/world.hpp"
#include "tests/actors/cluster_events.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

class MemberSession : public ::testing::Test {
 protected:
  void SetUp() override {
    world_ = std::make_unique<sim::World>(sim::NetworkOptions());
    StartNode(
        "node-9");  // the joined daemon's machine; its own session finds no manager before that is started
  }
  void TearDown() override { world_->ShutDown(); }

  void StartNode(const std::string& name) {
    sim::World::NodePlan plan;
    plan.options.name = name;
    plan.options.copies.region = plan.host_region;
    plan.options.gpus.push_back({"fake:0", plan.worker.memory});
    world_->StartNode(std::move(plan));
  }
  // A daemon on node-9's machine that is called `name` and whose log is `told_`.
  void Join(const std::string& name) {
    MemberOptions options;
    options.manager = "manager";
    options.record.set_name(name);
    options.record.set_kind(proto::MEMBER_NODE);
    options.record.set_address("node-9:7401");
    options.on_event = [this](const std::string& kind, const std::string& message) {
      told_.push_back({(world_->Now() - begin_) / milliseconds(1), kind, message});
    };
    begin_ = world_->Now();
    SpawnNodeMember(world_->system(), std::move(options), world_->node("node-9").controller,
                    world_->DirectoryOf("node-9"));
  }
  proto::MemberRecord RecordOf(const std::string& name) {
    proto::AdminRequest request;
    request.mutable_cluster_status();
    const auto reply = world_->Ask(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    for (const auto& entry : reply->status().members())
      if (entry.member().name() == name) return entry.member();
    return {};
  }
  std::vector<std::string> Kinds() const {
    std::vector<std::string> kinds;
    for (const auto& told : told_) kinds.push_back(told.kind);
    return kinds;
  }

  struct Told {
    std::int64_t ms = 0;  // after the daemon's start
    std::string kind;
    std::string message;
  };
  std::unique_ptr<sim::World> world_;
  std::vector<Told> told_;
  Time begin_{};
};

TEST_F(MemberSession, TheSecondDaemonOfANameIsRefusedAndBothLogsAreQuietAfterwards) {
  world_->StartManager();
  StartNode("node-1");
  world_->Run(seconds(1));
  const auto before = RecordOf("node-1");
  ASSERT_EQ(before.state(), proto::MEMBER_ALIVE);
  Join("node-1");
  world_->Run(minutes(1));
  const auto after = RecordOf("node-1");
  EXPECT_EQ(after.epoch(), before.epoch()) << "the daemon that has the name is left alone";
  EXPECT_EQ(after.address(), "node-1");
  const auto why = "another daemon at node-1 is already called 'node-1'; give one of them another --name";
  EXPECT_THAT(MessagesOfKind(*world_, "member-refused"), ElementsAre(why));
  ASSERT_THAT(Kinds(), ElementsAre("join-refused")) << "the log says it more than once";
  EXPECT_THAT(told_[0].message, HasSubstr(why));
}

TEST_F(MemberSession, ADaemonThatWasStartedAgainElsewhereJoinsAtOnceWhenTheOneBeforeIsKnownToBeDead) {
  world_->StartManager();
  StartNode("node-1");
  world_->Run(seconds(1));
  world_->KillNode("node-1");
  Join("node-1");
  world_->RunUntil([&] { return !told_.empty(); }, seconds(5));
  ASSERT_THAT(Kinds(), ElementsAre("cluster-joined"));
  EXPECT_LT(told_[0].ms, 100);
  EXPECT_EQ(RecordOf("node-1").address(), "node-9:7401");
}

TEST_F(MemberSession, WhereTheOneBeforeIsOnlyCutOffItsSilenceGivesTheNameFreeAndItStaysGone) {
  world_->StartManager();
  StartNode("node-1");
  world_->Run(seconds(1));
  world_->network()->Partition("node-1", "manager", false);
  Join("node-1");
  world_->RunUntil([&] { return told_.size() == 2; }, seconds(5));
  ASSERT_THAT(Kinds(), ElementsAre("join-refused", "cluster-joined"));
  EXPECT_LT(told_[1].ms, 900) << "the refused daemon waited longer than silence takes to count as death";
  world_->network()->Heal("node-1", "manager", false);
  const auto epoch = RecordOf("node-1").epoch();
  world_->Run(seconds(10));
  EXPECT_EQ(RecordOf("node-1").epoch(), epoch);
  EXPECT_EQ(RecordOf("node-1").address(), "node-9:7401");
}

TEST_F(MemberSession, WithoutAManagerItSaysSoAfterASecondAndThenEverMoreRarely) {
  Join("node-1");
  world_->Run(minutes(5));
  std::vector<std::int64_t> at;
  for (const auto& told : told_) {
    EXPECT_EQ(told.kind, "manager-missing");
    EXPECT_THAT(told.message, HasSubstr("no cluster manager at manager since "));
    at.push_back(told.ms / 1000);
  }
  EXPECT_THAT(at, ElementsAre(1, 3, 7, 15, 31, 63, 123, 183, 243));
  told_.clear();
  world_->StartManager();
  world_->Run(seconds(10));
  ASSERT_THAT(Kinds(), ElementsAre("cluster-joined"));
  EXPECT_THAT(told_[0].message, HasSubstr(", epoch "));
  world_->Run(minutes(5));
  EXPECT_EQ(told_.size(), 1u) << "the log says more while all is well";
  world_->StopManager();
  world_->Run(seconds(2));
  EXPECT_THAT(Kinds(), ElementsAre("cluster-joined", "manager-lost", "manager-missing"));
}

TEST_F(MemberSession, AnAdoptionsAnswerFromALifeThatIsOverCountsForNothing) {
  world_->StartManager();
  StartNode("node-1");
  world_->Run(seconds(1));
  // The messages of node-9 arrive three seconds late: the manager takes it for dead before its answer
  // arrives.
  world_->network()->Slow("node-9", "manager", seconds(3));
  ASSERT_TRUE(world_->Deploy("net", MiB(1)).ok());
  proto::AdminRequest list;
  list.mutable_list_functions();
  const auto holders = [&] {
    const auto functions = world_->Ask(list);
    EXPECT_TRUE(functions.ok()) << functions.status();
    std::vector<std::string> names;
    for (const auto& name : functions->functions(0).adopted_by()) names.push_back(name);
    return names;
  };
  world_->RunUntil([&] { return RecordOf("node-9").state() == proto::MEMBER_DEAD; }, seconds(2));
  ASSERT_EQ(RecordOf("node-9").state(), proto::MEMBER_DEAD);
  const auto epoch = RecordOf("node-9").epoch();
  // Runs until the member has joined again.
  for (int tries = 0; RecordOf("node-9").epoch() == epoch && tries < 1000; ++tries) {
    ASSERT_THAT(holders(), ElementsAre("node-1"));
    world_->Run(milliseconds(50));
  }
  world_->network()->Slow("node-9", "manager", Duration::zero());
  world_->Run(seconds(10));
  EXPECT_THAT(holders(), ElementsAre("node-1", "node-9"));
}

}  // namespace
}  // namespace troupe::actors

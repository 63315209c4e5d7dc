// How members learn what changes in the cluster: by updates, and by asking again when an update was lost.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "actors/member/member_session.hpp"
#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The updates that a gateway receives.
struct Heard {
  std::vector<proto::ClusterUpdate> updates;
  std::uint64_t joins = 0;
  proto::ClusterUpdate state;  // of the last join
  MemberSession session;
};

RouterActor::behavior_type Listener(RouterActor::pointer self, std::shared_ptr<Heard> heard) {
  return {
      [](const proto::InferRequest&) { return proto::InferReply(); },
      [](const proto::CancelInfer&) {},
      [](const proto::ReleaseOutputs&) {},
      [](const proto::ExportTensors&) { return proto::ExportedTensors(); },
      [](const proto::CreditGrant&) {},
      [heard](const proto::ClusterUpdate& update) { heard->updates.push_back(update); },
      [heard](const proto::MemberJoined& joined) {
        ++heard->joins;
        heard->state = joined.state();
      },
      [self, heard](const proto::DescribeMember&) {
        heard->session.AskedBy(self->current_sender());
        return proto::MemberReport();
      },
  };
}

proto::AdminRequest Removal(const std::string& function) {
  proto::AdminRequest request;
  request.mutable_remove()->mutable_key()->set_name(function);
  return request;
}

class Updates : public ::testing::Test {
 protected:
  // A second gateway, which only receives updates.
  void Listen() {
    listener_ = world_.system().spawn(Listener, heard_);
    MemberOptions options;
    options.manager = "manager";
    options.record.set_name("listener");
    options.record.set_kind(proto::MEMBER_GATEWAY);
    options.record.set_address("listener");
    member_ =
        SpawnGatewayMember(world_.system(), std::move(options), listener_, FrontActor(), world_.directory());
    world_.Run(milliseconds(500));
    ASSERT_EQ(heard_->joins, 1u);
    heard_->updates.clear();
  }
  void TearDown() override {
    if (member_) caf::anon_send_exit(member_, caf::exit_reason::user_shutdown);
    if (listener_) caf::anon_send_exit(listener_, caf::exit_reason::user_shutdown);
    member_ = nullptr;
    listener_ = nullptr;
  }
  // The view of a router that has missed updates: it lacks `function` and stands at revision 1.
  void Forget(const std::string& function) {
    proto::ClusterUpdate update;
    update.set_snapshot(true);
    update.set_revision(1);
    const auto view = world_.view()->Get();
    view->functions().ForEach([&](const proto::FunctionRecord& record) {
      if (record.key().name() != function) *update.add_functions() = record;
    });
    for (const auto& [name, member] : view->members()) *update.add_members() = member;
    caf::anon_send(world_.router(), std::move(update));
    world_.Settle();
  }
  [[nodiscard]] bool Knows(const std::string& function) {
    return world_.view()->Get()->functions().VersionsOf(function) != nullptr;
  }
  int Ask(const std::string& function) {
    world_.Infer(function, ++calls_);
    world_.Run(seconds(1));
    EXPECT_EQ(world_.answers.size(), calls_);
    return world_.answers.back().reply.code();
  }

  World world_{2};
  std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
  RouterActor listener_;
  MemberActor member_;
  std::uint64_t calls_ = 0;
};

TEST_F(Updates, SayWhatChangedHoweverMuchThereIs) {
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(world_.Deploy(absl::StrCat("f", i), MiB(1)).ok());
  Listen();
  ASSERT_TRUE(world_.Deploy("g", MiB(1)).ok());
  ASSERT_TRUE(world_.Ask(Removal("f3")).ok());
  world_.Run(milliseconds(50));
  std::vector<std::string> told;
  for (const auto& update : heard_->updates) {
    EXPECT_FALSE(update.snapshot());
    EXPECT_EQ(update.members_size(), 0);
    for (const auto& record : update.functions()) told.push_back("+" + record.key().name());
    for (const auto& key : update.removed()) told.push_back("-" + key.name());
  }
  EXPECT_EQ(told, (std::vector<std::string>{"+g", "-f3"}));
  EXPECT_LE(world_.view()->copies(), 2u) << "the router copied its view for the update";
}

TEST_F(Updates, ASnapshotOfManyFunctionsComesInPartsAndIsOneToTheGateway) {
  const std::string long_name(600'000, 'x');  // of an input, so that a part has two functions
  for (const char* name : {"a", "b", "c", "d", "e"})
    ASSERT_TRUE(world_.Deploy(name, MiB(1), Duration::zero(), {long_name}).ok());
  Listen();
  const auto names = [](const proto::ClusterUpdate& update) {
    return absl::StrJoin(update.functions(), " ", [](std::string* out, const auto& record) {
      absl::StrAppend(out, record.key().name());
    });
  };
  EXPECT_EQ(names(heard_->state), "a b c d e");
  EXPECT_TRUE(heard_->state.snapshot());
  EXPECT_EQ(heard_->state.more_after(), "");
  EXPECT_GT(heard_->state.members_size(), 0);
  // One that has fallen too far behind gets all of it, too.
  caf::anon_send(member_, proto::JoinRequest());
  world_.Settle();
  ASSERT_EQ(heard_->updates.size(), 1u);
  EXPECT_TRUE(heard_->updates[0].snapshot());
  EXPECT_EQ(names(heard_->updates[0]), "a b c d e");
  EXPECT_EQ(heard_->joins, 1u) << "the gateway joined again";
}

TEST_F(Updates, AMemberThatIsRemindedAsksForWhatItMissed) {
  ASSERT_TRUE(world_.Deploy("a", MiB(1)).ok());
  Listen();
  ASSERT_TRUE(world_.Deploy("b", MiB(1)).ok());
  world_.Settle();
  ASSERT_FALSE(heard_->updates.empty());
  const auto known = heard_->updates.front().since();
  const auto last = heard_->updates.back().revision();
  heard_->updates.clear();
  world_.Run(milliseconds(300));
  ASSERT_EQ(heard_->updates.size(), 1u) << "a revision was told more than once";
  EXPECT_EQ(heard_->updates[0].since(), last) << "a member that lacks an update finds the gap";
  EXPECT_EQ(heard_->updates[0].functions_size(), 0);
  heard_->updates.clear();
  caf::anon_send(member_, [&] {
    proto::JoinRequest ask;
    ask.set_known_revision(known);
    return ask;
  }());
  world_.Settle();
  ASSERT_EQ(heard_->updates.size(), 1u);
  EXPECT_FALSE(heard_->updates[0].snapshot());
  ASSERT_EQ(heard_->updates[0].functions_size(), 1);
  EXPECT_EQ(heard_->updates[0].functions(0).key().name(), "b");
  EXPECT_EQ(heard_->joins, 1u) << "the gateway joined again";
}

TEST_F(Updates, ARouterThatFindsAGapIsBroughtUpToDate) {
  for (const char* name : {"a", "b"}) ASSERT_TRUE(world_.Deploy(name, MiB(1)).ok());
  Forget("b");
  EXPECT_FALSE(Knows("b"));
  ASSERT_TRUE(world_.Deploy("c", MiB(1)).ok());  // this update does not follow what the router knows
  world_.Settle();
  EXPECT_TRUE(Knows("b"));
  EXPECT_TRUE(Knows("c"));
  EXPECT_EQ(Ask("b"), 0);
}

TEST_F(Updates, ALostUpdateThatNothingFollowsIsFoundByAHeartbeat) {
  ASSERT_TRUE(world_.Deploy("a", MiB(1)).ok());
  ASSERT_TRUE(world_.Deploy("b", MiB(1)).ok());
  Forget("b");
  EXPECT_FALSE(Knows("b"));
  world_.Run(milliseconds(300));
  EXPECT_TRUE(Knows("b"));
  EXPECT_EQ(Ask("b"), 0);
}

TEST_F(Updates, AFunctionWhoseRemovalWasLostIsGoneAllTheSame) {
  ASSERT_TRUE(world_.Deploy("a", MiB(1)).ok());
  const auto before = world_.view()->Get();
  ASSERT_TRUE(world_.Ask(Removal("a")).ok());
  proto::ClusterUpdate stale;
  stale.set_snapshot(true);
  stale.set_revision(before->revision());
  *stale.add_functions() = before->functions().VersionsOf("a")->begin()->second;
  for (const auto& [name, member] : before->members()) *stale.add_members() = member;
  caf::anon_send(world_.router(), std::move(stale));
  world_.Settle();
  ASSERT_TRUE(Knows("a"));
  world_.Run(milliseconds(300));
  EXPECT_FALSE(Knows("a"));
  EXPECT_EQ(Ask("a"), static_cast<int>(absl::StatusCode::kNotFound));
}

TEST_F(Updates, ANodeThatFindsAGapAsksItsMember) {
  auto asked = std::make_shared<std::vector<std::uint64_t>>();
  const auto controller = world_.node("node-1").controller;
  const auto member =
      world_.system().spawn([asked, controller](caf::event_based_actor* self) -> caf::behavior {
        proto::DescribeMember ask;
        ask.set_joining(true);
        self->request(controller, caf::infinite, ask).then([](const proto::MemberReport&) {});
        return {[asked](const proto::JoinRequest& ask) { asked->push_back(ask.known_revision()); }};
      });
  world_.Settle();
  // An ask without 'joining' comes from another actor, which the node must not take for its member.
  world_.system().spawn([controller](caf::event_based_actor* self) {
    self->request(controller, caf::infinite, proto::DescribeMember()).then([](const proto::MemberReport&) {});
  });
  world_.Settle();
  proto::ClusterUpdate later;
  later.set_since(std::uint64_t{1} << 40U);
  later.set_revision(later.since() + 1);
  caf::anon_send(controller, std::move(later));
  world_.Settle();
  ASSERT_EQ(asked->size(), 1u);
  EXPECT_EQ(asked->front(), world_.view()->Get()->revision())
      << "the node asks from another revision than the router's";
  caf::anon_send_exit(member, caf::exit_reason::user_shutdown);
}

TEST_F(Updates, AManagerThatRestartsTellsWhatChangesBehindIt) {
  for (const char* name : {"a", "b"}) ASSERT_TRUE(world_.Deploy(name, MiB(1)).ok());
  world_.StopManager();
  world_.Run(seconds(1));
  world_.StartManager();
  world_.Run(seconds(2));
  Listen();
  ASSERT_TRUE(world_.Deploy("c", MiB(1)).ok());
  ASSERT_TRUE(world_.Ask(Removal("a")).ok());
  world_.Settle();
  for (const auto& update : heard_->updates)
    EXPECT_LE(update.functions_size() + update.removed_size(), 1) << update.ShortDebugString();
  EXPECT_EQ(Ask("a"), static_cast<int>(absl::StatusCode::kNotFound));
  for (const char* name : {"b", "c"}) EXPECT_EQ(Ask(name), 0);
}

TEST_F(Updates, RequestsFollowModelsThatMoveToOtherNodes) {
  world_.StartNode([] {
    sim::World::NodePlan plan{.options = {}, .worker = {}, .host_region = GiB(2), .make_gpu = {}};
    plan.options.name = "node-3";
    plan.options.copies.region = GiB(2);
    plan.options.gpus = {{"fake:0", plan.worker.memory}};
    return plan;
  }());
  world_.Run(seconds(1));
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(world_.Deploy(absl::StrCat("f", i), MiB(1)).ok());
  world_.KillNode("node-1");
  world_.Run(seconds(3));
  world_.KillNode("node-2");
  world_.Run(seconds(1));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(Ask(absl::StrCat("f", i)), 0) << i;
  EXPECT_EQ(world_.answers.back().reply.node(), "node-3");
}

}  // namespace
}  // namespace troupe::actors

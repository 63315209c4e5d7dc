// What members do while they do not hear from the cluster manager: before and after the end of their lease.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "actors/member/lease.hpp"
#include "sim/network.hpp"
#include "sim/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

TEST(LeaseTest, IsCountedFromWhatTheManagerAnsweredLast) {
  Lease lease;
  EXPECT_FALSE(lease.Over(Time(seconds(1000)))) << "a member that never joined has promised nothing";
  EXPECT_FALSE(lease.ExclusiveOver(Time(seconds(1000))));
  lease.Begin(Time(seconds(100)), seconds(5), Time(seconds(100)));
  EXPECT_FALSE(lease.Over(Time(seconds(105))));
  EXPECT_TRUE(lease.Over(Time(seconds(105)) + Duration(1)));
  EXPECT_TRUE(lease.ExclusiveOver(Time(seconds(105)) + Duration(1)));
  lease.Heard(Time(seconds(103)));
  EXPECT_FALSE(lease.Over(Time(seconds(108))));
  EXPECT_THAT(lease.Why("node-1", Time(seconds(110))), HasSubstr("for 7 s, longer than its lease of 5 s"));
  lease.Begin(Time(seconds(200)), Duration::zero(), Time(seconds(200)));
  EXPECT_FALSE(lease.Over(Time(seconds(10000)))) << "a member without a lease goes on";
  EXPECT_FALSE(lease.ExclusiveOver(Time(seconds(210))));
  EXPECT_TRUE(lease.ExclusiveOver(Time(seconds(210)) + Duration(1)))
      << "a member goes on with what only one member may hold";
}

class Leases : public ::testing::Test {
 protected:
  void Open(Duration lease, std::size_t nodes = 2) {
    world_ = std::make_unique<sim::World>(sim::NetworkOptions());
    world_->StartManager(2, [lease](ManagerOptions& options) { options.member_lease = lease; });
    world_->StartGateway();
    for (std::size_t i = 1; i <= nodes; ++i) StartNode("node-" + std::to_string(i));
    world_->Run(seconds(1));
  }
  void StartNode(const std::string& name, const std::string& cluster = {}) {
    sim::World::NodePlan plan;
    plan.options.name = name;
    plan.options.copies.region = plan.host_region;
    plan.options.gpus.push_back({"fake:0", plan.worker.memory});
    plan.cluster = cluster;
    world_->StartNode(std::move(plan));
  }
  void TearDown() override {
    if (world_) world_->ShutDown();
  }
  proto::InferReply Infer(const std::string& function, Duration timeout = seconds(2)) {
    proto::InferRequest request;
    request.mutable_function()->set_name(function);
    request.set_timeout_ns(timeout.count());
    for (const char* name : inputs_) {
      auto& input = *request.add_inputs();
      input.mutable_spec()->set_name(name);
      input.mutable_spec()->set_type(proto::FP32);
      for (const int size : {1, 4}) input.mutable_spec()->add_shape(size);
      input.mutable_data()->set_inlined(std::string(16, 'i'));
    }
    std::optional<proto::InferReply> reply;
    world_->gateway(0).front->Infer(request, [&reply](proto::InferReply got) { reply = std::move(got); });
    world_->RunUntil([&] { return reply.has_value(); }, timeout + seconds(3));
    EXPECT_TRUE(reply.has_value());
    return reply.value_or(proto::InferReply());
  }
  void CutOff(const std::string& member, bool heal = false) {
    heal ? world_->network()->Heal(member, "manager", false)
         : world_->network()->Partition(member, "manager", false);
  }
  proto::MemberState StateOf(const std::string& member) {
    proto::AdminRequest request;
    request.mutable_cluster_status();
    const auto reply = world_->Ask(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    for (const auto& entry : reply->status().members())
      if (entry.member().name() == member) return entry.member().state();
    return proto::MEMBER_LEFT;
  }

  std::uint64_t EpochOf(const std::string& member) {
    proto::AdminRequest request;
    request.mutable_cluster_status();
    const auto reply = world_->Ask(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    for (const auto& entry : reply->status().members())
      if (entry.member().name() == member) return entry.member().epoch();
    return 0;
  }
  // Submits as a router would that knows nothing of leases.
  proto::SubmitReply Submit(const std::string& node, const std::string& function) {
    proto::SubmitRequest submit;
    submit.mutable_id()->set_router(7);
    submit.mutable_id()->set_sequence(next_sequence_++);
    submit.mutable_function()->set_name(function);
    submit.mutable_function()->set_version("1");
    submit.set_model_digest(sim::World::ModelDigest(function));
    submit.set_node_epoch(EpochOf(node));
    std::optional<proto::SubmitReply> reply;
    world_->system().spawn([&, controller = world_->node(node).controller](caf::event_based_actor* self) {
      self->request(controller, caf::infinite, submit).then([&reply](proto::SubmitReply& got) {
        reply = std::move(got);
      });
    });
    world_->RunUntil([&] { return reply.has_value(); }, seconds(5));
    EXPECT_TRUE(reply.has_value());
    return reply.value_or(proto::SubmitReply());
  }

  std::vector<const char*> inputs_ = {"x"};
  std::uint64_t next_sequence_ = 1;
  std::unique_ptr<sim::World> world_;
};

TEST_F(Leases, AGatewayBehindAPartitionRefusesWithTheReasonAndTakesPartAgainWhenItHasRejoined) {
  Open(seconds(3));
  ASSERT_TRUE(world_->Deploy("net", MiB(1)).ok());
  CutOff("gateway-1");
  world_->Run(seconds(2));
  EXPECT_EQ(Infer("net").code(), 0) << "a node does not serve what it knows within its lease";
  world_->Run(seconds(2));
  const auto refused = Infer("net");
  EXPECT_EQ(refused.code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_THAT(refused.message(), HasSubstr("has not heard from the cluster manager"));
  EXPECT_GT(refused.retry_after_ns(), 0);
  CutOff("gateway-1", true);
  world_->Run(seconds(2));
  EXPECT_EQ(Infer("net").code(), 0);
}

TEST_F(Leases, WithoutALeaseAGatewayGoesOn) {
  Open(Duration::zero());
  ASSERT_TRUE(world_->Deploy("net", MiB(1)).ok());
  CutOff("gateway-1");
  world_->Run(std::chrono::minutes(5));
  EXPECT_EQ(Infer("net").code(), 0);
}

TEST_F(Leases, ANodeFinishesWhatItHasAndBouncesWhatComesAfterItsLease) {
  Open(seconds(3), 1);
  ASSERT_TRUE(world_->Deploy("net", MiB(1)).ok());
  // The gateway does not learn that the node is dead, and goes on sending to it.
  CutOff("gateway-1");
  CutOff("node-1");
  world_->Run(milliseconds(2500));
  world_->node("node-1").workers[0]->hang = true;
  std::optional<proto::InferReply> held;
  proto::InferRequest request;
  request.mutable_function()->set_name("net");
  auto& input = *request.add_inputs();
  input.mutable_spec()->set_name("x");
  input.mutable_spec()->set_type(proto::FP32);
  for (const int size : {1, 4}) input.mutable_spec()->add_shape(size);
  input.mutable_data()->set_inlined(std::string(16, 'i'));
  world_->gateway(0).front->Infer(request, [&held](proto::InferReply got) { held = std::move(got); });
  world_->Run(seconds(1));
  world_->node("node-1").workers[0]->hang = false;
  // The router's own lease is over too, so the request is sent as from a router that does not know of leases.
  const auto bounced = Submit("node-1", "net");
  ASSERT_TRUE(bounced.has_bounced());
  EXPECT_EQ(bounced.bounced().reason(), proto::BOUNCE_LEASE_OVER) << bounced.bounced().message();
  EXPECT_THAT(bounced.bounced().message(), HasSubstr("'node-1' has not heard from the cluster manager"));
  world_->Run(seconds(15));
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(held->code(), 0) << held->message();
}

TEST_F(Leases, AFunctionsStateIsItsNodesOnlyWhileThatHearsFromTheManager) {
  Open(Duration::zero());
  proto::StateTensor kept;
  kept.set_input("kept");
  kept.set_output("kept_out");
  ASSERT_TRUE(world_->Deploy("stateful", MiB(1), milliseconds(100), {"x"}, {kept}).ok());
  ASSERT_TRUE(world_->Deploy("net", MiB(1)).ok());
  world_->Run(seconds(1));
  ASSERT_EQ(Infer("stateful").code(), 0);
  proto::AdminRequest list;
  list.mutable_list_functions();
  std::string home;
  const auto listed = world_->Ask(list);
  ASSERT_TRUE(listed.ok()) << listed.status();
  for (const auto& entry : listed->functions())
    if (entry.record().key().name() == "stateful") home = entry.adopted_by(0);
  ASSERT_FALSE(home.empty());
  CutOff(home);
  world_->Run(seconds(5));
  EXPECT_TRUE(Submit(home, "stateful").has_served());
  world_->Run(seconds(6));
  EXPECT_EQ(Submit(home, "stateful").bounced().reason(), proto::BOUNCE_LEASE_OVER);
  EXPECT_TRUE(Submit(home, "net").has_served()) << "other functions do not go on";
  CutOff(home, true);
  world_->Run(seconds(2));
  EXPECT_EQ(Infer("stateful").code(), 0);
}

TEST_F(Leases, AStateBeginsAnewElsewhereOnlyWhenItsNodesLeaseIsOver) {
  Open(Duration::zero());
  proto::StateTensor kept;
  kept.set_input("kept");
  kept.set_output("kept_out");
  const auto deploy = [&] { return world_->Deploy("stateful", MiB(1), milliseconds(100), {"x"}, {kept}); };
  ASSERT_TRUE(deploy().ok());
  world_->Run(seconds(1));
  const auto holder = [&]() -> std::string {
    proto::AdminRequest list;
    list.mutable_list_functions();
    const auto functions = world_->Ask(list);
    if (!functions.ok() || functions->functions_size() == 0) return "";
    return functions->functions(0).adopted_by_size() == 0 ? "" : functions->functions(0).adopted_by(0);
  };
  const auto home = holder();
  ASSERT_FALSE(home.empty());
  CutOff(home);
  const auto cut_off = world_->Now();
  world_->Run(seconds(2));
  proto::AdminRequest remove;
  remove.mutable_remove()->mutable_key()->set_name("stateful");
  ASSERT_TRUE(world_->Ask(remove).ok());
  world_->Run(seconds(1));
  static_cast<void>(deploy());
  world_->RunUntil([&] { return !holder().empty(); }, seconds(20));
  EXPECT_NE(holder(), home);
  EXPECT_GE(world_->Now() - cut_off, cluster::kLongestExclusiveLease - milliseconds(200));
  EXPECT_LT(world_->Now() - cut_off, cluster::kLongestExclusiveLease + seconds(2));
}

TEST_F(Leases, AMemberOfAnotherClusterIsRefusedWithWhatToDo) {
  Open(Duration::zero(), 1);
  StartNode("node-9", "another-cluster");
  StartNode("node-3", "test-cluster");
  world_->Run(seconds(2));
  EXPECT_EQ(StateOf("node-9"), proto::MEMBER_LEFT) << "a refused daemon became a member";
  EXPECT_EQ(StateOf("node-3"), proto::MEMBER_ALIVE);
  proto::AdminRequest request;
  request.mutable_list_events();
  const auto events = world_->Ask(request);
  ASSERT_TRUE(events.ok());
  int told = 0;
  for (const auto& event : events->events()) {
    if (event.kind() != "member-refused") continue;
    ++told;
    EXPECT_THAT(event.message(), HasSubstr("'node-9' is a member of cluster another-cluster"));
    EXPECT_THAT(event.message(), HasSubstr("remove the file 'cluster'"));
  }
  EXPECT_EQ(told, 1) << "the log says it more than once";
}

}  // namespace
}  // namespace troupe::actors

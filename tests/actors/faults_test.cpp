// Faults that an operator injects: which daemons allow them, how they reach a member, and what a node does
// with faults of its workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "actors/interfaces/fault_target.hpp"
#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using Fault = proto::InjectFault;

// A node of two GPUs, and a gateway. No daemon allows faults yet.
class FaultsTest : public ::testing::Test {
 protected:
  absl::Status Inject(Fault::Kind kind, const std::string& member = "node-1", std::uint32_t gpu = 0) {
    proto::AdminRequest request;
    request.mutable_inject_fault()->set_member(member);
    request.mutable_inject_fault()->set_kind(kind);
    request.mutable_inject_fault()->set_gpu(gpu);
    return world_.Ask(request).status();
  }
  // Faults that reach the process of `actor` are kept under its name.
  template <class Handle>
  void Allow(const Handle& actor, const std::string& name) {
    caf::anon_send(caf::actor_cast<FaultGateActor>(actor), AllowFaults{[this, name](const Fault& fault) {
                     done_.emplace_back(name, fault.kind());
                     return absl::OkStatus();
                   }});
    world_.Settle();
  }
  void AllowAll() {
    Allow(world_.manager(), "manager");
    Allow(world_.node("node-1").member, "node-1");
    Allow(world_.gateway(0).member, "gateway-1");
  }
  FakeWorkerControl& worker(std::size_t gpu) { return *world_.node("node-1").workers[gpu]; }

  World world_{1, 2};
  std::vector<std::pair<std::string, Fault::Kind>> done_;
};

TEST_F(FaultsTest, FaultsAreAllowedOnlyByAnOption) {
  // A manager that does not allow faults passes none on to members that do.
  Allow(world_.node("node-1").member, "node-1");
  for (const auto kind : {Fault::KILL_WORKER, Fault::KILL_DAEMON, Fault::CUT_TENSORS}) {
    const auto status = Inject(kind);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("'manager' does not allow faults: start it with --allow-faults"));
  }
  // A member that does not allow faults takes none.
  Allow(world_.manager(), "manager");
  const auto gateway = Inject(Fault::KILL_DAEMON, "gateway-1");
  EXPECT_TRUE(absl::IsFailedPrecondition(gateway)) << gateway;
  EXPECT_THAT(std::string(gateway.message()), HasSubstr("'gateway-1' does not allow faults"));
  EXPECT_TRUE(done_.empty());
  EXPECT_EQ(worker(0).spawns, 1u);
}

TEST_F(FaultsTest, AMemberWithoutPermissionKeepsItsWorkers) {
  Allow(world_.manager(), "manager");
  const auto status = Inject(Fault::KILL_WORKER);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  world_.Run(seconds(1));
  EXPECT_EQ(worker(0).spawns, 1u);
}

TEST_F(FaultsTest, EachReachesTheProcessThatItNamesAndIsTold) {
  AllowAll();
  EXPECT_TRUE(Inject(Fault::STOP_DAEMON, "node-1").ok());
  EXPECT_TRUE(Inject(Fault::CUT_TENSORS, "gateway-1").ok());
  EXPECT_TRUE(Inject(Fault::KILL_DAEMON, "manager").ok());
  const decltype(done_) expected = {
      {"node-1", Fault::STOP_DAEMON}, {"gateway-1", Fault::CUT_TENSORS}, {"manager", Fault::KILL_DAEMON}};
  EXPECT_EQ(done_, expected);
  const auto absent = Inject(Fault::KILL_DAEMON, "absent");
  EXPECT_TRUE(absl::IsNotFound(absent)) << absent;
  proto::AdminRequest request;
  request.mutable_list_events()->set_limit(0);
  const auto reply = world_.Ask(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  std::vector<std::string> told;
  for (const auto& event : reply->events())
    if (event.kind() == "fault-injected") told.push_back(event.member() + ": " + event.message());
  EXPECT_THAT(told, testing::ElementsAre("node-1: stop-daemon, by an operator",
                                         "gateway-1: cut-tensors, by an operator",
                                         "manager: kill-daemon, by an operator"));
}

TEST_F(FaultsTest, AKilledWorkerIsAnOrdinaryDeath) {
  AllowAll();
  ASSERT_TRUE(world_.Deploy("resnet", MiB(50)).ok());
  for (std::uint64_t call = 1; call <= 10; ++call) world_.Infer("resnet", call);
  world_.Run(milliseconds(1));
  EXPECT_TRUE(Inject(Fault::KILL_WORKER, "node-1", 1).ok());
  world_.Run(seconds(5));
  EXPECT_EQ(worker(1).spawns, 2u);
  EXPECT_EQ(worker(0).spawns, 1u) << "the other worker is left alone";
  ASSERT_EQ(world_.answers.size(), 10u);
  for (const auto& answer : world_.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
  EXPECT_TRUE(done_.empty()) << "the worker itself has to do it";
}

TEST_F(FaultsTest, AHungWorkerIsKilledByItsWatch) {
  AllowAll();
  ASSERT_TRUE(world_.Deploy("resnet", MiB(50)).ok());
  EXPECT_TRUE(Inject(Fault::HANG_WORKER, "node-1", 0).ok());
  EXPECT_TRUE(Inject(Fault::STALL_LINK, "node-1", 1).ok());
  world_.Infer("resnet", 1, seconds(60));
  world_.Run(seconds(60));
  ASSERT_EQ(world_.answers.size(), 1u);
  EXPECT_GT(worker(0).spawns + worker(1).spawns, 2u);
}

TEST_F(FaultsTest, WhatANodeCannotDoIsRefusedWithTheReason) {
  AllowAll();
  const auto nowhere = Inject(Fault::KILL_WORKER, "node-1", 2);
  EXPECT_TRUE(absl::IsNotFound(nowhere)) << nowhere;
  ASSERT_TRUE(Inject(Fault::KILL_WORKER, "node-1", 0).ok());
  world_.Run(milliseconds(1));
  const auto down = Inject(Fault::KILL_WORKER, "node-1", 0);
  EXPECT_TRUE(absl::IsUnavailable(down)) << "the GPU's worker is not up again yet: " << down;
}

}  // namespace
}  // namespace troupe::actors

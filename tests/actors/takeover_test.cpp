// Runs of workflows change their gateway: when a gateway dies, when it is only cut off, and when a manager
// restarts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/network.hpp"
#include "sim/world.hpp"
#include "tests/actors/cluster_events.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using storage::Table;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kChain[] = R"(
name: chain
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: one, function: net, inputs: {x: image}}
  - {name: two, function: net, inputs: {x: one.out_x}}
  - {name: three, function: net, inputs: {x: two.out_x}}
outputs: {y: three.out_x}
)";

class Takeover : public ::testing::Test {
 protected:
  using Slot = std::shared_ptr<std::optional<proto::InferReply>>;

  void Open(int gateways, const std::optional<sim::NetworkOptions>& network = {}) {
    world_ = std::make_unique<sim::World>(network);
    world_->StartManager();
    for (int i = 0; i < gateways; ++i) world_->StartGateway();
    sim::World::NodePlan plan;
    plan.options.name = "node-1";
    plan.options.copies.region = plan.host_region;
    plan.options.gpus.push_back({"fake:0", plan.worker.memory});
    world_->StartNode(std::move(plan));
    world_->Run(seconds(1));
    ASSERT_TRUE(world_->Deploy("net", MiB(1)).ok());
    proto::AdminRequest submit;
    submit.mutable_submit_workflow()->set_yaml(kChain);
    const auto submitted = world_->Ask(submit);
    ASSERT_TRUE(submitted.ok()) << submitted.status();
    world_->Run(milliseconds(200));
  }
  void TearDown() override {
    if (!world_) return;
    world_->store().Release();
    world_->ShutDown();
  }

  // `key` empty: the gateway chooses one.
  Slot Infer(std::size_t gateway, const std::string& key = {},
             const std::string& bytes = std::string(16, 'i'), Duration timeout = seconds(30)) {
    proto::InferRequest request;
    request.mutable_function()->set_name("chain");
    request.set_call(next_call_++);
    request.set_timeout_ns(timeout.count());
    request.set_run_key(key);
    auto& input = *request.add_inputs();
    input.mutable_spec()->set_name("image");
    input.mutable_spec()->set_type(proto::FP32);
    for (const int size : {1, 4}) input.mutable_spec()->add_shape(size);
    input.mutable_data()->set_inlined(bytes);
    auto slot = std::make_shared<std::optional<proto::InferReply>>();
    world_->gateway(gateway).front->Infer(std::move(request),
                                          [slot](proto::InferReply reply) { *slot = std::move(reply); });
    return slot;
  }
  std::size_t StepsOf(const std::string& run) {
    std::size_t steps = 0;
    EXPECT_TRUE(
        storage::ScanMessages<proto::CommitStep>(world_->store(), Table::kSteps, run + "/",
                                                 [&](std::string_view, const proto::CommitStep&) { ++steps; })
            .ok());
    return steps;
  }
  proto::RunRecord Stored(const std::string& run) {
    const auto record = storage::GetMessage<proto::RunRecord>(world_->store(), Table::kRuns, run);
    EXPECT_TRUE(record.ok()) << record.status();
    return record.ok() ? *record : proto::RunRecord();
  }
  // Runs until the log has `count` steps of the run.
  void RunUntilSteps(const std::string& run, std::size_t count) {
    world_->RunUntil([&] { return StepsOf(run) >= count; }, seconds(5));
    ASSERT_EQ(StepsOf(run), count);
  }
  std::vector<std::string> EventsOf(const std::string& kind) {
    std::vector<std::string> messages;
    for (const auto& event : EventsOfKind(*world_, kind))
      messages.push_back(absl::StrCat(event.member(), ": ", event.message()));
    return messages;
  }
  // A run at gateway-1, which is cut off from its node until the cut is healed. It was also cut off from the
  // manager for long enough to be taken for dead.
  Slot BeginAndFallSilent() {
    world_->network()->Partition("gateway-1", "node-1", false);
    const auto silent = Infer(0, "mine");
    world_->Run(milliseconds(20));
    world_->network()->Partition("gateway-1", "manager", false);
    world_->Run(milliseconds(900));
    world_->network()->Heal("gateway-1", "manager", false);
    return silent;
  }
  // Each run of the GPU is one step: no committed step is computed again.
  std::uint64_t Computed() { return world_->node("node-1").workers[0]->runs; }

  std::unique_ptr<sim::World> world_;
  std::uint64_t next_call_ = 1;
};

TEST_F(Takeover, ADeadGatewaysRunGoesOnAtAnotherBehindItsCommittedSteps) {
  Open(2);
  const auto before = Computed();
  const auto lost = Infer(0, "mine");
  RunUntilSteps("mine", 1);
  world_->KillGateway(0);
  world_->Run(seconds(2));
  const auto run = Stored("mine");
  EXPECT_EQ(run.state(), proto::RUN_SUCCEEDED);
  EXPECT_EQ(run.gateway(), "gateway-2");
  EXPECT_EQ(run.claim(), 1u);
  EXPECT_EQ(run.start().gateway(), "gateway-1");
  EXPECT_EQ(StepsOf("mine"), 3u);
  EXPECT_LE(Computed() - before, 4u) << "more than the step that was under way ran twice";
  EXPECT_THAT(EventsOf("run-taken-over"),
              ElementsAre(HasSubstr("gateway-2: run 'mine' goes on behind 1 committed steps")));
  // The client asks at another gateway with its key and gets the outcome of the run.
  const auto computed = Computed();
  const auto again = Infer(1, "mine");
  world_->Run(seconds(1));
  ASSERT_TRUE(again->has_value());
  EXPECT_EQ((*again)->code(), 0) << (*again)->message();
  EXPECT_EQ((*again)->outputs(0).data().inlined(), std::string(16, 'i'));
  EXPECT_EQ(Computed(), computed);
  // The same key with another body is another submission, and refused.
  const auto other = Infer(1, "mine", std::string(16, 'o'));
  world_->Run(seconds(1));
  ASSERT_TRUE(other->has_value());
  EXPECT_EQ((*other)->code(), static_cast<int>(absl::StatusCode::kAlreadyExists)) << (*other)->message();
}

TEST_F(Takeover, AClientOfARunAtAnotherGatewayIsAnsweredWithItsEnd) {
  Open(2);
  const auto before = Computed();
  const auto first = Infer(0, "mine");
  RunUntilSteps("mine", 1);
  const auto second = Infer(1, "mine");
  const auto third = Infer(0, "mine");
  world_->Run(seconds(1));
  for (const auto& slot : {first, second, third}) {
    ASSERT_TRUE(slot->has_value());
    EXPECT_EQ((*slot)->code(), 0) << (*slot)->message();
    EXPECT_EQ((*slot)->outputs(0).data().inlined(), std::string(16, 'i'));
  }
  EXPECT_EQ(Computed() - before, 3u) << "the run was computed more than once";
  EXPECT_EQ(Stored("mine").claim(), 0u) << "the run changed its gateway";
}

TEST_F(Takeover, AClientThatGoesAwayDoesNotEndARunWhoseKeyItChose) {
  Open(1);
  const auto mine = Infer(0, "mine");
  RunUntilSteps("mine", 1);
  world_->gateway(0).front->Cancel(1);
  world_->Run(seconds(1));
  ASSERT_TRUE(mine->has_value());
  EXPECT_EQ((*mine)->code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_EQ(Stored("mine").state(), proto::RUN_SUCCEEDED);
}

TEST_F(Takeover, WithoutAnotherGatewayItWaitsUntilOneComes) {
  Open(1);
  const auto lost = Infer(0, "mine");
  RunUntilSteps("mine", 2);
  world_->KillGateway(0);
  world_->Run(seconds(10));
  EXPECT_EQ(Stored("mine").state(), proto::RUN_RUNNING);
  EXPECT_EQ(Stored("mine").claim(), 0u);
  world_->StartGateway();
  world_->Run(seconds(3));
  EXPECT_EQ(Stored("mine").state(), proto::RUN_SUCCEEDED);
  EXPECT_EQ(Stored("mine").gateway(), "gateway-2");
  EXPECT_EQ(StepsOf("mine"), 3u);
}

TEST_F(Takeover, TheRunsOfADeadGatewayAreSpreadOverTheOthers) {
  Open(3);
  for (int i = 0; i < 8; ++i) Infer(0, absl::StrCat("run-", i));
  world_->RunUntil([&] { return StepsOf("run-0") >= 1; }, seconds(5));
  world_->KillGateway(0);
  world_->Run(seconds(3));
  std::map<std::string, int> moved;
  for (int i = 0; i < 8; ++i) {
    const auto run = Stored(absl::StrCat("run-", i));
    EXPECT_EQ(run.state(), proto::RUN_SUCCEEDED);
    if (run.claim() > 0) ++moved[run.gateway()];
  }
  ASSERT_EQ(moved.size(), 2u);
  EXPECT_LE(std::abs(moved["gateway-2"] - moved["gateway-3"]), 1);
}

TEST_F(Takeover, AGatewayThatWasOnlyCutOffCommitsNothingMoreAndItsClientStillHearsTheEnd) {
  Open(2, sim::NetworkOptions());
  const auto cut_off = Infer(0, "mine");
  RunUntilSteps("mine", 1);
  world_->network()->Partition("gateway-1", "manager", false);
  world_->Run(seconds(3));
  EXPECT_EQ(Stored("mine").state(), proto::RUN_SUCCEEDED)
      << "the other gateway did not finish the run meanwhile";
  EXPECT_EQ(Stored("mine").gateway(), "gateway-2");
  EXPECT_FALSE(cut_off->has_value()) << "the cut-off gateway waits for the manager";
  world_->network()->Heal("gateway-1", "manager", false);
  world_->Run(seconds(5));
  ASSERT_TRUE(cut_off->has_value());
  EXPECT_EQ((*cut_off)->code(), 0) << (*cut_off)->message();
  EXPECT_EQ((*cut_off)->outputs(0).data().inlined(), std::string(16, 'i'));
  EXPECT_EQ(Stored("mine").gateway(), "gateway-2");
  EXPECT_EQ(StepsOf("mine"), 3u);
}

// Gateway-1 is taken for dead, but its connection lives: it joins again, and its runs do not learn of it.
TEST_F(Takeover, AnOwnerThatWasSilentForAWhileHearsOfItsSuccessorAndAsksNoNodeAnyMore) {
  Open(2, sim::NetworkOptions());
  const auto before = Computed();
  const auto silent = BeginAndFallSilent();
  world_->Run(milliseconds(50));
  EXPECT_EQ(Stored("mine").gateway(), "gateway-2");
  ASSERT_TRUE(silent->has_value()) << "the run's own step still waits for a node that cannot be reached";
  EXPECT_EQ((*silent)->code(), 0) << (*silent)->message();
  EXPECT_EQ((*silent)->outputs(0).data().inlined(), std::string(16, 'i'));
  world_->network()->Heal("gateway-1", "node-1", false);
  world_->Run(seconds(5));
  EXPECT_EQ(Computed() - before, 3u);
  EXPECT_THAT(EventsOf("run-claim-refused"), testing::IsEmpty());
}

// As above, but no other gateway could take its runs: gateway-1 owns them again, and no step is computed
// twice.
TEST_F(Takeover, TheOnlyGatewayHasItsRunsAgainWhenItWasMerelySilent) {
  Open(1, sim::NetworkOptions());
  const auto before = Computed();
  const auto silent = BeginAndFallSilent();
  world_->Run(milliseconds(2200));
  EXPECT_EQ(Stored("mine").claim(), 0u) << "a gateway claimed the run";
  world_->network()->Heal("gateway-1", "node-1", false);
  world_->Run(seconds(5));
  ASSERT_TRUE(silent->has_value());
  EXPECT_EQ((*silent)->code(), 0) << (*silent)->message();
  EXPECT_EQ(Stored("mine").claim(), 0u);
  EXPECT_EQ(Computed() - before, 3u);
}

TEST_F(Takeover, WhatAnEarlierClaimSaysIsRefusedWithAnEvent) {
  Open(2);
  const auto lost = Infer(0, "mine");
  RunUntilSteps("mine", 1);
  world_->store().Hold();
  world_->KillGateway(0);
  world_->Run(seconds(1));
  world_->store().Release();
  proto::CommitStep late;
  late.set_run("mine");
  late.set_step("two");
  late.add_outputs()->set_inlined("wrong");
  const auto step = world_->Ask<proto::RunReply>(late);
  EXPECT_TRUE(absl::IsAborted(step.status())) << step.status();
  EXPECT_THAT(std::string(step.status().message()), HasSubstr("goes on at gateway 'gateway-2'"));
  proto::FinishRun end;
  end.set_run("mine");
  end.set_state(proto::RUN_FAILED);
  EXPECT_TRUE(absl::IsAborted(world_->Ask<proto::RunReply>(end).status()));
  world_->Run(seconds(2));
  EXPECT_EQ(Stored("mine").state(), proto::RUN_SUCCEEDED);
  EXPECT_EQ(EventsOf("run-claim-refused").size(), 2u);
}

TEST_F(Takeover, AManagerThatRestartsFindsItsRunsWhereTheyAreAndNothingIsLost) {
  Open(2);
  const auto before = Computed();
  const auto mine = Infer(0, "mine");
  RunUntilSteps("mine", 1);
  world_->StopManager();
  world_->Run(seconds(4));
  EXPECT_FALSE(mine->has_value()) << "the run waits for the manager";
  world_->StartManager();
  world_->Run(seconds(4));
  ASSERT_TRUE(mine->has_value());
  EXPECT_EQ((*mine)->code(), 0) << (*mine)->message();
  EXPECT_EQ(Stored("mine").state(), proto::RUN_SUCCEEDED);
  EXPECT_EQ(Stored("mine").gateway(), "gateway-1") << "the owner of the run reported it too late";
  EXPECT_EQ(Computed() - before, 3u);
}

TEST_F(Takeover, ARestartedManagerMovesTheRunsOfAGatewayThatDiedMeanwhile) {
  Open(2);
  const auto lost = Infer(0, "mine");
  RunUntilSteps("mine", 1);
  world_->StopManager();
  world_->KillGateway(0);
  world_->Run(seconds(1));
  world_->StartManager();
  world_->Run(seconds(1));
  EXPECT_EQ(Stored("mine").state(), proto::RUN_RUNNING) << "the gateway may yet join again";
  world_->Run(seconds(3));
  EXPECT_EQ(Stored("mine").state(), proto::RUN_SUCCEEDED);
  EXPECT_EQ(Stored("mine").gateway(), "gateway-2");
}

TEST_F(Takeover, AClaimThatCannotBeStoredIsMadeAgain) {
  Open(2);
  const auto lost = Infer(0, "mine");
  RunUntilSteps("mine", 1);
  world_->store().Hold();
  world_->KillGateway(0);
  world_->Run(milliseconds(500));
  ASSERT_GE(world_->store().held(), 1u);
  world_->store().FailNext(absl::ResourceExhaustedError("no space left on the device"),
                           world_->store().held());
  world_->store().Release();
  world_->Run(milliseconds(500));
  EXPECT_EQ(Stored("mine").claim(), 0u);
  world_->Run(seconds(6));
  EXPECT_EQ(Stored("mine").state(), proto::RUN_SUCCEEDED);
  EXPECT_EQ(Stored("mine").claim(), 1u);
}

TEST_F(Takeover, ARunWhoseWorkflowWasRemovedIsFailedWithTheReason) {
  Open(2);
  const auto lost = Infer(0, "mine");
  RunUntilSteps("mine", 1);
  proto::AdminRequest remove;
  remove.mutable_remove_workflow()->set_name("chain");
  ASSERT_TRUE(world_->Ask(remove).ok());
  ASSERT_EQ(Stored("mine").state(), proto::RUN_RUNNING);
  world_->KillGateway(0);
  world_->Run(seconds(2));
  EXPECT_EQ(Stored("mine").state(), proto::RUN_FAILED);
  EXPECT_THAT(Stored("mine").message(), HasSubstr("its workflow was removed"));
}

TEST_F(Takeover, AnOperatorsCancellationReachesTheGatewayThatHasItNow) {
  Open(2);
  auto& worker = *world_->node("node-1").workers[0];
  worker.hang = true;
  const auto lost = Infer(0, "mine");
  world_->Run(milliseconds(100));
  world_->KillGateway(0);
  world_->Run(seconds(1));
  EXPECT_EQ(Stored("mine").gateway(), "gateway-2");
  proto::AdminRequest cancel;
  cancel.mutable_cancel_run()->set_run("mine");
  ASSERT_TRUE(world_->Ask(cancel).ok());
  worker.hang = false;
  world_->Run(seconds(20));
  EXPECT_EQ(Stored("mine").state(), proto::RUN_CANCELLED);
  EXPECT_EQ(StepsOf("mine"), 0u);
}

// The actor of the run's gateway ends while the claim of another actor is on its way to a full disk: then the
// run has no owner, and it must not be given back to the actor that has ended.
TEST_F(Takeover, AGatewayThatDiesWhileAClaimIsStoredIsNotGivenTheRunBack) {
  Open(1, sim::NetworkOptions());
  const auto silent = BeginAndFallSilent();
  world_->gateway(0).front->Cancel(1);
  world_->store().Hold();
  const auto again = Infer(0, "mine");
  world_->Run(milliseconds(10));
  world_->network()->Heal("gateway-1", "node-1", false);
  world_->Run(milliseconds(1500));
  world_->store().FailNext(absl::ResourceExhaustedError("no space left on the device"),
                           world_->store().held());
  world_->store().Release();
  world_->Run(seconds(5));
  const auto third = Infer(0, "mine");
  world_->Run(seconds(60));
  ASSERT_TRUE(third->has_value());
  EXPECT_EQ((*third)->code(), 0) << (*third)->message();
  EXPECT_EQ(Stored("mine").state(), proto::RUN_SUCCEEDED);
}

}  // namespace
}  // namespace troupe::actors

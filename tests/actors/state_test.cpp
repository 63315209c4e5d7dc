// Functions that keep state on the device, in a cluster under virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/actors/state_world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::HasSubstr;
using testing::Pair;

TEST(State, EachRunFindsWhatItsPredecessorLeft) {
  StateWorld world;
  ASSERT_TRUE(world.DeployState("sum").ok());
  for (int i = 1; i <= 5; ++i) EXPECT_EQ(world.Count("sum"), i);
}

// Functions of one model that differ in how they are computed: a request is computed as its own function
// declares.
TEST(State, ARunIsComputedAsItsFunctionSays) {
  StateWorld world(1);
  const auto as = [](const char* name, proto::Precision precision, std::uint32_t percent) {
    return [=](proto::DeployRequest& wish) {
      wish.set_name(name);
      wish.set_precision(precision);
      wish.mutable_sharing()->set_sm_partition(percent);
    };
  };
  for (const auto& wish : {as("net", proto::PRECISION_FP16, 24), as("exact", proto::PRECISION_FP32, 0),
                           as("small", proto::PRECISION_FP16, 6)})
    ASSERT_TRUE(world.Deploy("net", MiB(20), milliseconds(100), {"x"}, {}, wish).ok());
  ASSERT_TRUE(world.DeployState("sum", MiB(20), as("sum", proto::PRECISION_TF32, 50)).ok());
  const auto& worker = *world.node("node-1").workers[0];
  const auto packed = [](const char* name) { return "packed-" + Sha256Hex(absl::StrCat("model ", name)); };
  EXPECT_THAT(worker.prepared_as, Contains(Pair(packed("net"), proto::PRECISION_FP16)));
  for (const char* name : {"net", "exact", "small", "sum", "net"}) world.Infer(name, world.NextCall());
  world.Run(seconds(2));
  ASSERT_EQ(world.answers.size(), 5u);
  for (const auto& answer : world.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
  EXPECT_THAT(worker.run_as,
              testing::UnorderedElementsAre(testing::FieldsAre(packed("net"), proto::PRECISION_FP16, 24),
                                            testing::FieldsAre(packed("net"), proto::PRECISION_FP32, 0),
                                            testing::FieldsAre(packed("net"), proto::PRECISION_FP16, 6),
                                            testing::FieldsAre(packed("sum"), proto::PRECISION_TF32, 50)));
}

TEST(State, ManyAtOnceGoOneAfterTheOther) {
  StateWorld world(4);
  ASSERT_TRUE(world.DeployState("sum").ok());
  std::vector<std::uint64_t> calls;
  for (int i = 0; i < 12; ++i) {
    calls.push_back(world.NextCall());
    world.Infer("sum", calls.back());
  }
  world.Run(seconds(5));
  for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(world.CountOf(calls[i]), static_cast<int>(i + 1));
}

// Two functions of one model; for each a client sends requests without a pause.
void TwoOfOneModel(std::size_t gpus, bool kill) {
  StateWorld world(gpus);
  ASSERT_TRUE(world.DeployState("left").ok());
  proto::AdminRequest deploy;
  const auto found = storage::ScanMessages<proto::FunctionRecord>(
      world.store(), storage::Table::kFunctions, "", [&](std::string_view, proto::FunctionRecord record) {
        deploy.mutable_deploy()->set_onnx_digest(record.onnx_digest());
        *deploy.mutable_deploy()->mutable_state() = record.state();
      });
  ASSERT_TRUE(found.ok());
  deploy.mutable_deploy()->set_name("right");
  ASSERT_TRUE(world.Ask(deploy).ok());
  world.Run(seconds(1));
  std::map<std::string, std::uint64_t> under_way;
  std::map<std::string, int> answered;
  for (int step = 0; step < 4000; ++step) {
    for (const char* name : {"left", "right"}) {
      auto& call = under_way[name];
      if (call != 0 && world.Find(call) == nullptr) continue;
      if (call != 0) {
        ASSERT_EQ(world.CountOf(call), ++answered[name]) << name << " at step " << step;
      }
      call = world.NextCall();
      world.Infer(name, call);
    }
    const auto holder = world.Holder();
    if (kill && step % 1000 == 500 && holder != nullptr) holder->kill();
    world.Run(std::chrono::microseconds(500));
  }
  EXPECT_GT(answered["left"], 20);
  EXPECT_GT(answered["right"], answered["left"] / 2) << "neither starves";
  EXPECT_GT(answered["left"], answered["right"] / 2);
}

TEST(State, FunctionsOfOneModelDoNotDisturbEachOther) {
  for (const std::size_t gpus : {1, 2}) TwoOfOneModel(gpus, false);
}

TEST(State, FunctionsOfOneModelLoseNothingWithTheirWorkers) {
  for (const std::size_t gpus : {1, 2}) TwoOfOneModel(gpus, true);
}

// The memory of a GPU holds two of three models: each call evicts another, and the state moves.
TEST(State, ItIsWrittenBackAtEvictionAndComesBackAlsoOnAnotherGpu) {
  for (const auto write_back : {node::StateWriteBack::kRun, node::StateWriteBack::kEvict}) {
    StateWorld world(2, write_back, MiB(250));
    for (const char* name : {"a", "b", "c", "d", "e"}) ASSERT_TRUE(world.DeployState(name).ok());
    ASSERT_TRUE(world.Deploy("plain", MiB(100)).ok());
    for (int i = 1; i <= 6; ++i) {
      for (const char* name : {"a", "b", "c", "d", "e"}) EXPECT_EQ(world.Count(name), i) << name;
      world.Infer("plain", world.NextCall());
    }
    world.Run(seconds(1));
    EXPECT_EQ(world.Told("state-not-saved"), "");
  }
}

TEST(State, NothingAcknowledgedIsLostWithItsWorker) {
  StateWorld world(2);
  ASSERT_TRUE(world.DeployState("sum").ok());
  for (int i = 1; i <= 9; ++i) {
    EXPECT_EQ(world.Count("sum"), i);
    if (i % 3 == 0) world.Holder()->kill();
  }
  EXPECT_EQ(world.Told("state-lost"), "");
}

// A daemon that was started again is told to adopt a model before it has heard which functions there are.
TEST(State, ARequestThatComesBeforeTheNewsOfItsStateDoesNotRunWithoutIt) {
  StateWorld world(1);
  ASSERT_TRUE(world.DeployState("sum").ok());
  EXPECT_EQ(world.Count("sum"), 1);
  proto::AdoptModel adopt;
  const auto found = storage::ScanMessages<proto::FunctionRecord>(
      world.store(), storage::Table::kFunctions, "",
      [&](std::string_view, proto::FunctionRecord record) { *adopt.mutable_function() = std::move(record); });
  ASSERT_TRUE(found.ok());
  world.StopManager();
  world.KillNode("node-1");
  world.RestartNode("node-1", sim::World::Kept::kDisk);
  proto::SubmitRequest submit;
  *submit.mutable_function() = adopt.function().key();
  submit.set_model_digest(adopt.function().model_digest());
  std::vector<proto::SubmitReply> replies;
  world.system().spawn([&, node = world.node("node-1").controller](caf::event_based_actor* self) {
    self->request(node, caf::infinite, adopt).then([&, self, node](const proto::AdoptModelReply&) {
      self->request(node, caf::infinite, submit).then([&](proto::SubmitReply& reply) {
        replies.push_back(std::move(reply));
      });
    });
  });
  world.Run(milliseconds(500));
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].bounced().reason(), proto::BOUNCE_NOT_ADOPTED) << replies[0].ShortDebugString();
  EXPECT_THAT(replies[0].bounced().message(), HasSubstr("has not heard of the state of function 'sum' yet"));
}

// The failure comes at every moment of a run: the run that the client's answer tells of counts once.
TEST(State, AWorkerThatDiesDuringARunLeavesItAsItWas) {
  for (int moment = 0; moment < 30; ++moment) {
    StateWorld world(2);
    ASSERT_TRUE(world.DeployState("sum").ok());
    EXPECT_EQ(world.Count("sum"), 1);
    const auto call = world.NextCall();
    world.Infer("sum", call);
    world.Run(milliseconds(moment) / 2);
    world.Holder()->kill();
    world.Run(seconds(2));
    EXPECT_EQ(world.CountOf(call), 2) << moment;
    EXPECT_EQ(world.Count("sum"), 3) << moment;
  }
}

TEST(State, WrittenBackAtEvictionsOnlyTheRunsSinceGoWithTheWorkerAndAnEventSaysHowMany) {
  StateWorld world(1, node::StateWriteBack::kEvict, MiB(150));
  ASSERT_TRUE(world.DeployState("sum").ok());
  ASSERT_TRUE(world.Deploy("plain", MiB(100)).ok());
  EXPECT_EQ(world.Count("sum"), 1);
  EXPECT_EQ(world.Count("sum"), 2);
  EXPECT_EQ(world.Count("plain"), -2);  // this request evicts the model of 'sum'
  EXPECT_EQ(world.Count("sum"), 3);
  EXPECT_EQ(world.Count("sum"), 4);
  world.Holder()->kill();
  world.Run(seconds(1));
  EXPECT_THAT(world.Told("state-lost"), HasSubstr("the 2 runs since it was last written back are lost"));
  EXPECT_EQ(world.Count("sum"), 3);
}

TEST(State, ARunWhoseStateCannotBeKeptFailsAndLeavesItAsItWas) {
  StateWorld world(1);
  ASSERT_TRUE(world.DeployState("sum").ok());
  EXPECT_EQ(world.Count("sum"), 1);
  world.node("node-1").workers[0]->refuse_write_back = true;
  const auto call = world.NextCall();
  world.Infer("sum", call);
  world.Run(seconds(1));
  ASSERT_NE(world.Find(call), nullptr);
  EXPECT_THAT(world.Find(call)->message(), HasSubstr("could not be kept, and is as it was before"));
  world.node("node-1").workers[0]->refuse_write_back = false;
  EXPECT_EQ(world.Count("sum"), 2);
}

TEST(State, AnEvictionThatCannotWriteBackLeavesTheModelAndLosesNothing) {
  StateWorld world(1, node::StateWriteBack::kEvict, MiB(150));
  ASSERT_TRUE(world.DeployState("sum").ok());
  ASSERT_TRUE(world.Deploy("plain", MiB(100)).ok());
  EXPECT_EQ(world.Count("sum"), 1);
  world.node("node-1").workers[0]->refuse_write_back = true;
  const auto call = world.NextCall();
  world.Infer("plain", call);
  world.Run(milliseconds(200));
  EXPECT_THAT(world.Told("state-not-saved"), HasSubstr("its model stays"));
  world.node("node-1").workers[0]->refuse_write_back = false;
  world.Run(seconds(5));
  ASSERT_NE(world.Find(call), nullptr);
  EXPECT_EQ(world.Count("sum"), 2);
}

TEST(State, ANewDeploymentBeginsAnew) {
  StateWorld world;
  ASSERT_TRUE(world.DeployState("sum").ok());
  EXPECT_EQ(world.Count("sum"), 1);
  EXPECT_EQ(world.Count("sum"), 2);
  proto::AdminRequest remove;
  remove.mutable_remove()->mutable_key()->set_name("sum");
  ASSERT_TRUE(world.Ask(remove).ok());
  ASSERT_TRUE(world.DeployState("sum").ok());
  EXPECT_EQ(world.Count("sum"), 1);
}

TEST(State, AFunctionWithStateHasOneNode) {
  StateWorld world(1, node::StateWriteBack::kRun, GiB(1), {}, 3);
  ASSERT_TRUE(world.DeployState("sum").ok());
  world.Run(seconds(2));
  proto::AdminRequest show;
  show.mutable_show_function()->mutable_key()->set_name("sum");
  const auto reply = world.Ask(show);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->functions(0).adopted_by_size(), 1);
}

std::string HomeOf(StateWorld& world) {
  proto::AdminRequest show;
  show.mutable_show_function()->mutable_key()->set_name("sum");
  const auto reply = world.Ask(show);
  return reply.ok() && reply->functions(0).adopted_by_size() == 1 ? reply->functions(0).adopted_by(0) : "";
}

TEST(State, WithoutItsNodeItIsRefusedAndNotBegunAnewElsewhere) {
  StateWorld world(1, node::StateWriteBack::kRun, GiB(1), {}, 3);
  ASSERT_TRUE(world.DeployState("sum").ok());
  EXPECT_EQ(world.Count("sum"), 1);
  world.StopManager();  // the store keeps what the manager knows of the home
  world.Run(seconds(1));
  world.StartManager();
  world.Run(seconds(2));
  EXPECT_EQ(world.Count("sum"), 2);
  const auto home = HomeOf(world);
  ASSERT_NE(home, "");
  world.KillNode(home);
  world.Run(seconds(3));
  EXPECT_EQ(world.Count("sum"), -1);
  EXPECT_THAT(world.EventsOf("state-unreachable"), HasSubstr("has its state on node '" + home + "'"));
}

// There is no other node that could take it over.
TEST(State, ADrainedNodeThatIsTheOnlyOneKeepsItAndGoesOnWhenItIsBack) {
  StateWorld world(1);
  ASSERT_TRUE(world.DeployState("sum").ok());
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(world.Count("sum"), i);
  const auto home = HomeOf(world);
  proto::AdminRequest drain;
  drain.mutable_drain()->set_name(home);
  drain.mutable_drain()->set_drain(true);
  ASSERT_TRUE(world.Ask(drain).ok());
  world.Run(seconds(2));
  EXPECT_EQ(world.Count("sum"), -1);
  EXPECT_THAT(world.Told("state-stays"), HasSubstr("its state of 3 runs stays here"));
  drain.mutable_drain()->set_drain(false);
  ASSERT_TRUE(world.Ask(drain).ok());
  world.Run(seconds(2));
  EXPECT_EQ(world.Count("sum"), 4);
}

TEST(State, AStateThatTheNodeHasNoRoomForIsRefused) {
  StateWorld world(1, node::StateWriteBack::kRun, GiB(1),
                   [](NodeOptions& options) { options.states.capacity = Bytes(20); });
  EXPECT_TRUE(world.DeployState("first").ok());  // a state of 16 bytes
  EXPECT_EQ(world.Count("first"), 1);
  (void)world.DeployState("second");
  EXPECT_EQ(world.Count("second"), -1);
  EXPECT_THAT(world.Told("state-refused"), HasSubstr("option state-memory"));
}

}  // namespace
}  // namespace troupe::actors

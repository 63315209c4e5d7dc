// Gateways that name the GPU of each request (LALB, 003, across nodes), on whole clusters over fake workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/actors/state_world.hpp"
#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// A load takes much longer than a run, which nodes know from the begin, and two models fit on a GPU. Gateway 0 is as ever;
// the others name GPUs.
class NamedGpus : public testing::TestWithParam<const char*> {
 protected:
  void Start(std::size_t nodes, std::size_t gpus, std::size_t gateways = 1, const char* preset = GetParam()) {
    FakeWorkerProfile profile;
    profile.memory = MiB(250);
    profile.link = BytesPerSecond(2e8);  // 100 MiB in half a second
    profile.run = milliseconds(50);
    const auto policies = *FindPreset(preset);
    world_ =
        std::make_unique<World>(nodes, gpus, profile, World::Channels(), GiB(2), [&](NodeOptions& options) {
          options.policies = policies;
          options.costs = {.link = profile.link, .run = profile.run};
        });
    for (std::size_t i = 0; i < gateways; ++i) {
      RouterOptions options;
      options.policies = policies;
      world_->StartGateway(std::move(options));
    }
    world_->asked = 1;
    world_->Run(seconds(1));
  }
  void Deploy(const std::string& name, const World::DeployWish& wish = {}) {
    const auto status = world_->Deploy(name, MiB(100), seconds(10), {"x"}, {}, wish);
    ASSERT_TRUE(status.ok()) << status;
    world_->Run(seconds(1));
  }
  FakeWorkerControl& worker(const std::string& node, std::size_t gpu = 0) {
    return *world_->node(node).workers[gpu];
  }
  [[nodiscard]] std::uint64_t Swaps(std::size_t nodes) {
    std::uint64_t swaps = 0;
    for (std::size_t i = 1; i <= nodes; ++i)
      for (const auto& worker : world_->node("node-" + std::to_string(i)).workers) swaps += worker->swaps;
    return swaps;
  }
  // Each request was answered once, with its own output.
  void ExpectServed(std::size_t count) {
    ASSERT_EQ(world_->answers.size(), count);
    std::set<std::uint64_t> calls;
    for (const auto& answer : world_->answers) {
      ASSERT_EQ(answer.reply.code(), 0) << answer.call << ": " << answer.reply.message();
      EXPECT_EQ(answer.reply.outputs(0).data().inlined(), std::to_string(answer.call));
      EXPECT_TRUE(calls.insert(answer.call).second);
    }
  }

  std::unique_ptr<World> world_;
};
INSTANTIATE_TEST_SUITE_P(Presets, NamedGpus, testing::Values("load-balance", "lalb", "lalb-o3"),
                         [](const auto& preset) {
                           std::string name = preset.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(NamedGpus, OneNodeOfTwoGpusServesLikeTwoNodesOfOne) {
  const auto served = [&](std::size_t nodes, std::size_t gpus) {
    Start(nodes, gpus);
    for (const char* function : {"a", "b", "c"}) Deploy(function);
    const std::string asked = "abacabbcabcacbabccabaabcbacbab";
    for (std::size_t i = 0; i < asked.size(); ++i) {
      world_->Infer(asked.substr(i, 1), i, seconds(60));
      world_->Run(milliseconds(40 * (i % 4)));
    }
    world_->Run(seconds(30));
    ExpectServed(asked.size());
    std::vector<std::pair<std::uint64_t, bool>>
        ends;  // in the order of the answers: call, and whether it was a hit
    for (const auto& answer : world_->answers) ends.emplace_back(answer.call, answer.reply.hit());
    return ends;
  };
  EXPECT_EQ(served(1, 2), served(2, 1));
}

TEST_P(NamedGpus, ANodeThatDiesInMidQueueLosesNoRequest) {
  Start(2, 1);
  for (const char* function : {"a", "b"}) Deploy(function);
  for (std::uint64_t call = 1; call <= 20; ++call)
    world_->Infer(call % 2 == 0 ? "a" : "b", call, seconds(60));
  world_->Run(milliseconds(700));
  ASSERT_LT(world_->answers.size(), 20u);
  world_->KillNode("node-2");
  world_->Run(seconds(20));
  ExpectServed(20);
}

TEST_P(NamedGpus, AWorkerThatDiesInMidQueueLosesNoRequest) {
  Start(2, 1);
  for (const char* function : {"a", "b"}) Deploy(function);
  for (std::uint64_t call = 1; call <= 20; ++call)
    world_->Infer(call % 2 == 0 ? "a" : "b", call, seconds(60));
  world_->Run(milliseconds(700));
  ASSERT_LT(world_->answers.size(), 20u);
  worker("node-2").kill();
  world_->Run(seconds(20));
  ExpectServed(20);
  EXPECT_EQ(worker("node-2").spawns, 2u);
}

TEST_P(NamedGpus, ADrainedNodeGetsNothingMoreAndComesBack) {
  Start(2, 1);
  Deploy("a");
  Deploy("b");
  proto::AdminRequest drain;
  drain.mutable_drain()->set_name("node-1");
  drain.mutable_drain()->set_drain(true);
  ASSERT_TRUE(world_->Ask(drain).ok());
  world_->Run(seconds(1));
  for (std::uint64_t call = 1; call <= 10; ++call)
    world_->Infer(call % 2 == 0 ? "a" : "b", call, seconds(60));
  world_->Run(seconds(10));
  ExpectServed(10);
  EXPECT_EQ(worker("node-1").runs, 0u);
  drain.mutable_drain()->set_drain(false);
  ASSERT_TRUE(world_->Ask(drain).ok());
  world_->Run(seconds(1));
  // More than are worth to wait for the GPU that has the models.
  for (std::uint64_t call = 11; call <= 40; ++call)
    world_->Infer(call % 2 == 0 ? "a" : "b", call, seconds(60));
  world_->Run(seconds(10));
  ExpectServed(40);
  EXPECT_GT(worker("node-1").runs, 0u);
}

TEST_P(NamedGpus, TwoGatewaysThatChooseTheSameGpuWaitForEachOtherThere) {
  Start(2, 1, 2);
  for (const char* function : {"a", "b", "c"}) Deploy(function);
  for (std::uint64_t call = 1; call <= 40; ++call) {
    world_->asked = 1 + call % 2;
    world_->Infer(std::string(1, static_cast<char>('a' + call % 3)), call, seconds(60));
    world_->Run(milliseconds(30 * (call % 3)));
  }
  world_->Run(seconds(40));
  ExpectServed(40);
  for (const char* node : {"node-1", "node-2"}) EXPECT_GT(worker(node).runs, 5u) << node;
}

TEST_P(NamedGpus, AGatewayThatNamesNoGpusIsServedBesideThem) {
  Start(2, 1);
  for (const char* function : {"a", "b"}) Deploy(function);
  for (std::uint64_t call = 1; call <= 30; ++call) {
    world_->asked = call % 2;
    world_->Infer(call % 3 == 0 ? "a" : "b", call, seconds(60));
    world_->Run(milliseconds(20 * (call % 3)));
  }
  world_->Run(seconds(20));
  ExpectServed(30);
}

TEST_P(NamedGpus, AnIsolatedFunctionIsRefusedByName) {
  Start(1, 1);
  Deploy("a", [](proto::DeployRequest& wish) { wish.set_isolation(proto::ISOLATION_FUNCTION); });
  world_->Infer("a", 1);
  world_->Run(seconds(1));
  ASSERT_EQ(world_->answers.size(), 1u);
  EXPECT_EQ(world_->answers[0].reply.code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(world_->answers[0].reply.message(), HasSubstr("'a' is isolated"));
}

class Lalb : public NamedGpus {};
INSTANTIATE_TEST_SUITE_P(Presets, Lalb, testing::Values("lalb", "lalb-o3"), [](const auto& preset) {
  std::string name = preset.param;
  std::erase(name, '-');
  return name;
});

TEST_P(Lalb, ModelsStayWhereTheirRequestsGo) {
  Start(2, 1);
  for (const char* function : {"a", "b"}) Deploy(function);
  for (std::uint64_t call = 1; call <= 20; ++call) {
    world_->Infer(call % 2 == 0 ? "a" : "b", call, seconds(60));
    world_->Run(milliseconds(call <= 2 ? 2000 : 30));
  }
  world_->Run(seconds(5));
  ExpectServed(20);
  EXPECT_EQ(Swaps(2), 2u);  // each model was loaded once
}

TEST_P(Lalb, RequestsWaitForTheGpuThatHasTheirModelBeyondItsCredits) {
  Start(2, 1);
  Deploy("a");
  world_->Infer("a", 1, seconds(60));
  world_->Run(seconds(2));
  // A load would take ten runs: the next ones wait for the GPU that has the model. At it there are credits for four of them,
  // since two gateways share eight, and the others wait at the gateway.
  for (std::uint64_t call = 2; call <= 6; ++call) world_->Infer("a", call, seconds(60));
  world_->Cancel(6);
  world_->Run(seconds(2));
  EXPECT_EQ(Swaps(2), 1u);
  EXPECT_EQ(worker("node-1").runs + worker("node-2").runs, 5u);
}

TEST(NamedGpusWithState, AStateIsOneWhicheverGpuIsNamed) {
  const auto policies = *FindPreset("lalb-o3");
  StateWorld world(2, node::StateWriteBack::kRun, GiB(1),
                   [&](NodeOptions& options) { options.policies = policies; });
  RouterOptions gateway;
  gateway.policies = policies;
  world.StartGateway(std::move(gateway));
  world.asked = 1;
  world.Run(seconds(1));
  ASSERT_TRUE(world.DeployState("s").ok());
  ASSERT_TRUE(world.Deploy("a", MiB(100)).ok());
  world.Run(seconds(1));
  // While its GPU is busy with the other function, other GPUs are named for it.
  for (int count = 1; count <= 20; ++count) {
    for (int i = 0; i < 3; ++i) world.Infer("a", world.NextCall());
    EXPECT_EQ(world.Count("s"), count);
  }
  world.Holder()->kill();
  world.Run(milliseconds(1));
  EXPECT_EQ(world.Count("s"), 21);
}

}  // namespace
}  // namespace troupe::actors

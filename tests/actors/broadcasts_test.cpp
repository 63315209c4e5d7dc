// A burst for one model: one GPU loads it from the host, and the other GPUs copy it from that GPU as it
// arrives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/digest.hpp"
#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

// Three GPUs with links from the first to each of the others. From the host a model takes 105 ms, over a link
// 52 ms; a run takes a second.
class BroadcastsOfANode : public testing::Test {
 protected:
  explicit BroadcastsOfANode(node::BroadcastRule rule = node::BroadcastRule::kBurst)
      : world_(1, 3, Profile(), {}, GiB(2), [rule](NodeOptions& options) {
          options.policies.gpu = "most-free";
          options.topology = *node::Topology::Parse("link:0-1=2GB,link:0-2=2GB");
          options.scheduler.broadcast = rule;
        }) {
    EXPECT_TRUE(world_.Deploy("resnet", MiB(100)).ok());
  }
  static FakeWorkerProfile Profile() {
    FakeWorkerProfile profile;
    profile.link = {1e9};
    profile.peer_link = {2e9};
    profile.run = seconds(1);
    return profile;
  }
  void Burst(std::uint64_t requests) {
    for (std::uint64_t call = 0; call < requests; ++call) world_.Infer("resnet", call, seconds(100));
  }
  void ExpectAllServed(std::size_t requests) {
    ASSERT_EQ(world_.answers.size(), requests);
    for (const auto& answer : world_.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
  }
  [[nodiscard]] std::vector<std::string> Events(const std::string& kind) const {
    std::vector<std::string> messages;
    for (const auto& [what, message] : world_.events)
      if (what == kind) messages.push_back(message);
    return messages;
  }
  World world_;
  std::vector<std::shared_ptr<FakeWorkerControl>>& workers_ = world_.node("node-1").workers;
};

TEST_F(BroadcastsOfANode, ABurstTakesItsModelFromTheHostOnce) {
  Burst(3);
  world_.Run(seconds(5));
  ExpectAllServed(3);
  EXPECT_THAT(
      Events("swap"),
      UnorderedElementsAre("GPU 0: 'resnet' from host, 100 MiB in 105 ms",
                           testing::StartsWith("GPU 1: 'resnet' from GPU 0, as it came, 100 MiB in "),
                           testing::StartsWith("GPU 2: 'resnet' from GPU 0, as it came, 100 MiB in ")));
  EXPECT_EQ(workers_[1]->received, 1u);
  EXPECT_EQ(workers_[2]->received, 1u);
  EXPECT_EQ(workers_[0]->life.meetings.size(), 1u) << "one broadcast serves both GPUs";
}

TEST_F(BroadcastsOfANode, WhatIsDispatchedBehindOneIsServed) {
  Burst(9);
  world_.Run(seconds(20));
  ExpectAllServed(9);
  EXPECT_EQ(workers_[0]->swaps + workers_[1]->swaps + workers_[2]->swaps, 3u);
}

TEST_F(BroadcastsOfANode, ASenderThatDiesInTheMiddleCostsNoRequest) {
  Burst(3);
  world_.Run(milliseconds(60));
  ASSERT_EQ(workers_[1]->swaps, 1u);
  workers_[0]->refuse_start = true;  // the worker does not come back
  workers_[0]->kill();
  world_.Run(seconds(20));
  ExpectAllServed(3);
  EXPECT_EQ(workers_[1]->received + workers_[2]->received, 0u);
  EXPECT_EQ(workers_[1]->swaps, 1u) << "the worker itself goes on from the host";
  EXPECT_EQ(Events("swap").size(), 2u);
  for (const auto& swap : Events("swap")) EXPECT_THAT(swap, testing::HasSubstr("from host"));
}

TEST_F(BroadcastsOfANode, AReceiverThatDiesInTheMiddleCostsNoRequest) {
  Burst(3);
  world_.Run(milliseconds(60));
  workers_[1]->refuse_start = true;
  workers_[1]->kill();
  world_.Run(seconds(20));
  ExpectAllServed(3);
  // The GPUs that took part in a broadcast are free for another one.
  ASSERT_TRUE(world_.Deploy("second", MiB(100)).ok());
  for (std::uint64_t call = 10; call < 12; ++call) world_.Infer("second", call, seconds(100));
  world_.Run(seconds(20));
  ExpectAllServed(5);
  EXPECT_EQ(workers_[2]->received, 2u);
}

TEST_F(BroadcastsOfANode, ASenderThatDiesBeforeItHearsOfItIsReplacedByTheHost) {
  Burst(2);
  while (workers_[0]->swaps == 0) world_.Run(std::chrono::microseconds(50));
  workers_[0]->refuse_start = true;
  workers_[0]->kill();
  world_.Run(seconds(20));
  ExpectAllServed(2);
}

// The model is taken off the node at every stage of the broadcast: before time has passed, and later.
TEST_F(BroadcastsOfANode, AModelThatIsRemovedAtAnyMomentOfItsBroadcastIsNoTrouble) {
  std::uint64_t models = 0;
  const auto removed_after = [&](const std::function<void()>& moment) {
    const std::string name = "model-" + std::to_string(models++);
    ASSERT_TRUE(world_.Deploy(name, MiB(100)).ok());
    world_.Infer(name, 2 * models);
    world_.Infer(name, 2 * models + 1);
    moment();
    proto::DisownModel disown;
    disown.set_model_digest(Sha256Hex("model " + name));
    caf::anon_send(world_.node("node-1").controller, disown);
    world_.Run(seconds(20));
    ASSERT_EQ(world_.answers.size(), 2 * models);
  };
  bool more = true;
  for (std::uint64_t steps = 0; more; ++steps) {
    removed_after([&] {
      for (std::uint64_t i = 0; i < steps && more; ++i) more = world_.scheduler().try_run_once();
    });
    ASSERT_FALSE(HasFatalFailure()) << "after " << steps << " steps";
  }
  for (const int microseconds : {1, 400, 500, 501, 600, 10'000, 52'000, 60'000, 104'000, 106'000, 500'000}) {
    removed_after([&] { world_.Run(std::chrono::microseconds(microseconds)); });
    ASSERT_FALSE(HasFatalFailure()) << "after " << microseconds << " us";
  }
  EXPECT_GT(workers_[1]->received + workers_[2]->received, 0u);
  world_.answers.clear();
  const std::uint64_t before = workers_[0]->swaps + workers_[1]->swaps + workers_[2]->swaps;
  ASSERT_TRUE(world_.Deploy("last", MiB(100)).ok());
  for (std::uint64_t call = 5000; call < 5003; ++call) world_.Infer("last", call, seconds(100));
  world_.Run(seconds(20));
  ExpectAllServed(3);
  EXPECT_EQ(workers_[0]->swaps + workers_[1]->swaps + workers_[2]->swaps, before + 3);
  EXPECT_EQ(Events("swap").back().find("from host"), std::string::npos) << "no source is held any more";
}

class WithoutBroadcasts : public BroadcastsOfANode {
 protected:
  WithoutBroadcasts() : BroadcastsOfANode(node::BroadcastRule::kOff) {}
};
TEST_F(WithoutBroadcasts, EveryGpuTakesItFromTheHost) {
  Burst(3);
  world_.Run(seconds(5));
  ExpectAllServed(3);
  EXPECT_EQ(workers_[1]->received + workers_[2]->received, 0u);
  for (const auto& swap : Events("swap")) EXPECT_THAT(swap, testing::HasSubstr("from host"));
}

}  // namespace
}  // namespace troupe::actors

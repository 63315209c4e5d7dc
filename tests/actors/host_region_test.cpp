// More models than a node's host region or its GPUs hold: everybody is answered all the same.
#include <gtest/gtest.h>

#include "base/random.hpp"
#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string Name(std::uint64_t i) {
  return "f" + std::to_string(i);
}

std::string Trace(const World& world) {
  std::string trace;
  for (const auto& answer : world.answers) {
    trace += std::to_string(answer.call) + ":" + std::to_string(answer.reply.code()) + "/" +
             std::to_string(answer.reply.gpu()) + ":" + std::to_string(answer.took.count()) + "\n";
  }
  return trace;
}

std::size_t Count(const World& world, const std::string& kind) {
  return static_cast<std::size_t>(std::count_if(world.events.begin(), world.events.end(),
                                                [&](const auto& event) { return event.first == kind; }));
}

// Twelve functions, a region of five, GPUs of three each, a worker killed on the way.
std::string RunThroughASmallRegion(std::size_t* loaded = nullptr) {
  FakeWorkerProfile profile;
  profile.memory = MiB(320);
  World world(1, 2, profile, {}, MiB(512));
  for (std::uint64_t i = 0; i < 12; ++i) EXPECT_TRUE(world.Deploy(Name(i), MiB(100)).ok());
  Random random(5);
  for (std::uint64_t i = 0; i < 300; ++i) {
    world.Infer(Name(random.Below(12)), i, seconds(30));
    if (i == 150) world.node("node-1").workers[0]->kill();
    world.Run(milliseconds(random.Below(60)));
    EXPECT_LE(world.node("node-1").repository.host_bytes(), MiB(512));
  }
  world.Run(seconds(30));
  EXPECT_EQ(world.answers.size(), 300u);
  for (const auto& answer : world.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
  if (loaded != nullptr) *loaded = Count(world, "model-loaded");
  return Trace(world);
}

TEST(HostRegion, MoreFunctionsThanItHoldsAreAllServedAlsoWhenAWorkerDies) {
  std::size_t loaded = 0;
  const auto first = RunThroughASmallRegion(&loaded);
  EXPECT_GT(loaded, 20u) << "each load from disk is an event";
  EXPECT_EQ(first, RunThroughASmallRegion()) << "the same steps give the same trace";
}

// Two hot functions, a region for one: neither starves.
TEST(HostRegion, AModelInUseMakesRoomInTurns) {
  World world(1, 1, {}, {}, MiB(110));
  for (const char* name : {"a", "b"}) ASSERT_TRUE(world.Deploy(name, MiB(100)).ok());
  for (std::uint64_t i = 0; i < 200; ++i) {
    world.Infer(i % 2 == 0 ? "a" : "b", i, seconds(20));
    world.Run(milliseconds(8));
  }
  world.Run(seconds(20));
  ASSERT_EQ(world.answers.size(), 200u);
  for (const auto& answer : world.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
  EXPECT_LT(Count(world, "model-loaded"), 60u) << "a turn serves several";
}

TEST(HostRegion, ARequestThatFindsNoTurnEndsWithItsTimeout) {
  World world(1, 1, {}, {}, MiB(110));
  for (const char* name : {"a", "b"}) ASSERT_TRUE(world.Deploy(name, MiB(100)).ok());
  world.node("node-1").workers[0]->hang = true;  // whatever runs now does not end
  world.Infer("b", 1, seconds(2));
  world.Run(milliseconds(10));
  world.Infer("a", 2, seconds(1));
  world.Run(milliseconds(1500));
  ASSERT_EQ(world.answers.size(), 1u);
  EXPECT_EQ(world.answers[0].call, 2u);
  EXPECT_EQ(world.answers[0].reply.code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
}

TEST(HostRegion, ADamagedModelIsNeverServedAndComesFromTheManagerAgain) {
  World world(1, 1, {}, {}, MiB(110));
  for (const char* name : {"a", "b"}) ASSERT_TRUE(world.Deploy(name, MiB(100)).ok());
  auto& repository = world.node("node-1").repository;
  repository.Damage(Sha256Hex("weights a"));
  world.Infer("a", 1);
  world.Run(seconds(2));
  ASSERT_EQ(world.answers.size(), 1u);
  EXPECT_EQ(world.answers[0].reply.code(), 0) << world.answers[0].reply.message();
  EXPECT_EQ(Count(world, "model-damaged"), 1u);
  EXPECT_TRUE(repository.Has(Sha256Hex("weights a")));
}

TEST(HostRegion, ADamagedModelWaitsForAManagerThatIsAway) {
  World world(1, 1, {}, {}, MiB(110));
  for (const char* name : {"a", "b"}) ASSERT_TRUE(world.Deploy(name, MiB(100)).ok());
  world.StopManager();
  world.node("node-1").repository.Damage(Sha256Hex("model a"));
  world.Infer("a", 1, seconds(60));
  world.Infer("b", 2, seconds(60));
  world.Run(seconds(3));
  ASSERT_EQ(world.answers.size(), 1u) << "the others are served meanwhile";
  EXPECT_EQ(world.answers[0].call, 2u);
  world.StartManager();
  world.Run(seconds(10));
  ASSERT_EQ(world.answers.size(), 2u);
  EXPECT_EQ(world.answers[1].reply.code(), 0) << world.answers[1].reply.message();
}

TEST(HostRegion, ARemovedFunctionLeavesTheRegionAndMayComeBack) {
  World world(1, 1, {}, {}, MiB(330));
  for (const char* name : {"a", "b"}) ASSERT_TRUE(world.Deploy(name, MiB(100)).ok());
  EXPECT_EQ(world.node("node-1").repository.host_copies(), 2u);
  proto::AdminRequest request;
  request.mutable_remove()->mutable_key()->set_name("a");
  ASSERT_TRUE(world.Ask(request).ok());
  world.Run(seconds(1));
  EXPECT_EQ(world.node("node-1").repository.host_copies(), 1u);
  ASSERT_TRUE(world.Deploy("a", MiB(100)).ok());
  world.Infer("a", 1);
  world.Run(seconds(1));
  ASSERT_EQ(world.answers.size(), 1u);
  EXPECT_EQ(world.answers[0].reply.code(), 0) << world.answers[0].reply.message();
}

TEST(HostRegion, WhatNeverFitsIsRefusedWhenItIsDeployed) {
  World world(1, 1, {}, {}, MiB(50));
  const auto status = world.Deploy("large", MiB(100));
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("50 MiB"), std::string::npos) << status;
}

// Requests that end before their model has come leave no model behind that neither goes nor serves: a GPU of
// two models, eight functions, most requests with less time than a swap takes.
TEST(HostRegion, RequestsThatExpireDuringTheirSwapLeaveTheGpuUsable) {
  FakeWorkerProfile profile;
  profile.memory = MiB(230);
  World world(1, 2, profile);
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(world.Deploy(Name(i), MiB(100)).ok());
  Random random(3);
  for (std::uint64_t i = 0; i < 300; ++i) {
    world.Infer(Name(random.Below(8)), i, milliseconds(2 + random.Below(30)));
    world.Run(milliseconds(random.Below(15)));
  }
  world.Run(seconds(5));
  ASSERT_EQ(world.answers.size(), 300u);
  world.answers.clear();
  for (std::uint64_t i = 0; i < 8; ++i) {
    world.Infer(Name(i), 1000 + i, seconds(5));
    world.Run(seconds(6));
  }
  ASSERT_EQ(world.answers.size(), 8u);
  for (const auto& answer : world.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
}

}  // namespace
}  // namespace troupe::actors

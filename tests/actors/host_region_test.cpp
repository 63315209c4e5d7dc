// More models than a node's host region or its GPUs hold: every request is answered all the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

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

// Twelve functions, a host region for five models, GPUs for three models each, and a worker that is killed on
// the way.
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

// Two functions with many requests and a host region for one model: neither function starves.
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
  EXPECT_LT(Count(world, "model-loaded"), 60u) << "each load serves only one request";
}

TEST(HostRegion, ARequestThatFindsNoTurnEndsWithItsTimeout) {
  World world(1, 1, {}, {}, MiB(110));
  for (const char* name : {"a", "b"}) ASSERT_TRUE(world.Deploy(name, MiB(100)).ok());
  world.node("node-1").workers[0]->hang = true;  // the run that is under way does not end
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
  // The cluster's log has these events too, and says where the swapped model had been.
  std::map<std::string, std::string> told;
  proto::AdminRequest ask;
  ask.mutable_list_events();
  const auto reply = world.Ask(ask);
  ASSERT_TRUE(reply.ok()) << reply.status();
  for (const auto& event : reply->events()) told[event.kind()] = event.message();
  EXPECT_TRUE(told.contains("model-damaged"));
  EXPECT_THAT(told["model-loaded"], testing::HasSubstr("function 'a': "));
  EXPECT_THAT(told["swap"], testing::HasSubstr("'a' from disk"));
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
  ASSERT_EQ(world.answers.size(), 1u) << "the other requests are not served meanwhile";
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

// Sizes that are added up must not wrap: else a run that seems to need nothing is promised memory that no GPU
// has.
TEST(HostRegion, SizesThatNoDeviceHasAreNotBelieved) {
  auto wrong = std::make_shared<bool>(true);
  FakeWorkerProfile profile;
  profile.activation_of = [wrong](const std::string&) { return *wrong ? Bytes(UINT64_MAX) : MiB(1); };
  World world(1, 1, profile);
  ASSERT_TRUE(world.Deploy("f", MiB(100)).ok());
  *wrong = false;
  EXPECT_EQ(Count(world, "worker-sizes-refused"), 1u);
  world.Infer("f", 1);
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

// Requests that end before their model has arrived must not leave a model on the GPU that can neither be
// evicted nor serve. A GPU for two models, eight functions; most requests have less time than a swap takes.
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

// The state from which `gpu show` and `gpu list` are made.
TEST(HostRegion, AnOperatorSeesWhatIsWhereWhatRunsAndWhatMoved) {
  FakeWorkerProfile profile;
  profile.memory = MiB(230);
  World world(1, 1, profile, {}, MiB(220));
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(world.Deploy(name, MiB(100)).ok());
  std::uint64_t call = 0;
  for (const char* name : {"a", "b", "c", "c"}) {
    world.Infer(name, call++);
    world.Run(seconds(1));
  }
  world.Infer("a", call);
  world.Run(milliseconds(2));  // the swap is under way
  proto::AdminRequest request;
  request.mutable_list_gpus();
  const auto reply = world.Ask(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->gpus_size(), 1);
  const auto& gpu = reply->gpus(0);
  ASSERT_GE(gpu.swaps_size(), 3);
  EXPECT_EQ(gpu.swaps(0).bytes(), MiB(100).count());
  EXPECT_EQ(gpu.swaps(0).source(), "host");
  EXPECT_EQ(gpu.swaps(0).evicted_size(), 1) << "the third model drove another one out";
  EXPECT_GT(gpu.swaps(0).took_ns(), 0);
  EXPECT_GE(gpu.models_size(), 2);
  for (const auto& model : gpu.models()) EXPECT_EQ(model.functions_size(), 1);
  ASSERT_EQ(reply->regions_size(), 1);
  const auto& region = reply->regions(0);
  EXPECT_EQ(region.models_size(), 3);
  EXPECT_GE(region.loads(), 4u);
  EXPECT_LE(region.used_bytes(), region.bytes());
}

}  // namespace
}  // namespace troupe::actors

// States and sequences with copies on other nodes, in a cluster under virtual time: what was acknowledged goes on when a node
// is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/actors/state_world.hpp"
#include "tests/temporary_directory.hpp"

namespace troupe::actors {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// The function "sum" counts its runs, and those of each sequence.
class ReplicasWorld : public StateWorld {
 public:
  explicit ReplicasWorld(const test::TemporaryDirectory& directory, std::uint32_t replicas = 1,
                         std::size_t nodes = 2, node::StateWriteBack write_back = node::StateWriteBack::kRun)
      : StateWorld(
            1, write_back, GiB(1),
            [&directory](NodeOptions& options) {
              options.states.directory = directory.path() + "/" + options.name;
              std::filesystem::create_directories(options.states.directory);
            },
            nodes),
        directory_(directory.path()) {
    EXPECT_TRUE(DeployState("sum", MiB(100), [replicas](proto::DeployRequest& wish) {
                  wish.set_state_replicas(replicas);
                }).ok());
  }

  std::uint64_t Call(const std::string& sequence, bool start = false, bool end = false) {
    proto::Sequence wish;
    wish.set_id(sequence);
    wish.set_start(start);
    wish.set_end(end);
    const auto call = NextCall();
    sequence.empty() ? Infer("sum", call, seconds(40)) : Infer("sum", call, seconds(40), "", wish);
    return call;
  }
  int CountFor(const std::string& sequence, bool start = false, bool end = false) {
    const auto call = Call(sequence, start, end);
    RunUntil([&] { return Find(call) != nullptr; }, seconds(60));
    return CountOf(call);
  }
  // As the manager's store has it.
  proto::PlacementRecord Stored() {
    proto::PlacementRecord stored;
    const auto found = storage::ScanMessages<proto::PlacementRecord>(
        store(), storage::Table::kSettings, "state-home/",
        [&](std::string_view, const proto::PlacementRecord& record) { stored = record; });
    EXPECT_TRUE(found.ok());
    return stored;
  }
  std::string Home() { return Stored().nodes(0); }
  bool AwaitInStep(int nodes) {
    RunUntil([&] { return Stored().in_step_size() == nodes; }, seconds(20));
    return Stored().in_step_size() == nodes;
  }
  std::vector<std::string> FilesOf(const std::string& node) const {
    std::vector<std::string> files;
    for (const auto& file : std::filesystem::directory_iterator(directory_ + "/" + node))
      files.push_back(file.path().filename().string());
    return files;
  }

 private:
  const std::string directory_;
};

TEST(StateReplicas, WhatWasAcknowledgedGoesOnWhenTheHomeIsGone) {
  test::TemporaryDirectory directory;
  ReplicasWorld world(directory);
  ASSERT_EQ(world.CountFor(""), 1);
  ASSERT_EQ(world.CountFor("left", true), 1);
  ASSERT_TRUE(world.AwaitInStep(1));
  ASSERT_EQ(world.CountFor(""), 2);
  ASSERT_EQ(world.CountFor("left"), 2);
  ASSERT_EQ(world.CountFor("right", true), 1);
  const auto home = world.Home();
  const auto replica = world.Stored().in_step(0);
  world.KillNode(home);
  EXPECT_EQ(world.CountFor(""), 3);
  EXPECT_EQ(world.CountFor("left"), 3);
  EXPECT_EQ(world.CountFor("right"), 2);
  EXPECT_EQ(world.Home(), replica);
  EXPECT_EQ(world.Stored().term(), 2u);
  EXPECT_THAT(world.EventsOf("state-restored"), HasSubstr("node '" + home + "' is gone"));
  EXPECT_EQ(world.Told("state-lost") + world.Told("state-damaged"), "");
}

TEST(StateReplicas, AHomeThatComesBackIsNotTheHomeAndBecomesAReplica) {
  test::TemporaryDirectory directory;
  ReplicasWorld world(directory);
  ASSERT_EQ(world.CountFor(""), 1);
  ASSERT_EQ(world.CountFor("left", true), 1);
  int count = 1;
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(world.AwaitInStep(1)) << "in round " << round;
    const auto home = world.Home();
    world.KillNode(home);
    ASSERT_EQ(world.CountFor(""), ++count) << "in round " << round;
    world.RestartNode(home, ReplicasWorld::Kept::kDisk);
    world.Run(seconds(3));
    ASSERT_NE(world.Home(), home);
    ASSERT_EQ(world.CountFor(""), ++count) << "in round " << round;
    ASSERT_EQ(world.CountFor("left"), round + 2);
  }
}

TEST(StateReplicas, AHomeThatComesBackInTimeGoesOn) {
  test::TemporaryDirectory directory;
  ReplicasWorld world(directory);
  ASSERT_EQ(world.CountFor(""), 1);
  ASSERT_TRUE(world.AwaitInStep(1));
  const auto home = world.Home();
  world.KillNode(home);
  world.Run(seconds(3));
  world.RestartNode(home, ReplicasWorld::Kept::kDisk);
  EXPECT_EQ(world.CountFor(""), 2);
  world.Run(seconds(20));
  EXPECT_EQ(world.Home(), home);
  EXPECT_THAT(world.Stored().in_step(), SizeIs(1)) << "its replica was in step all the time";
}

TEST(StateReplicas, AnAnswerWaitsForTheManagerWhenTheReplicaDies) {
  test::TemporaryDirectory directory;
  ReplicasWorld world(directory);
  ASSERT_EQ(world.CountFor(""), 1);
  ASSERT_TRUE(world.AwaitInStep(1));
  const auto replica = world.Stored().in_step(0);
  world.store().Hold();
  world.KillNode(replica);
  const auto call = world.Call("");
  world.Run(seconds(3));
  EXPECT_EQ(world.Find(call), nullptr) << "the store may still name the replica as in step";
  world.store().Release();
  world.RunUntil([&] { return world.Find(call) != nullptr; }, seconds(10));
  EXPECT_EQ(world.CountOf(call), 2);
  EXPECT_THAT(world.Stored().in_step(), IsEmpty());
  world.RestartNode(replica, ReplicasWorld::Kept::kDisk);
  EXPECT_TRUE(world.AwaitInStep(1)) << "it is filled anew";
  world.KillNode(world.Home());
  EXPECT_EQ(world.CountFor(""), 3);
}

TEST(StateReplicas, ADeadReplicaIsReplaced) {
  test::TemporaryDirectory directory;
  ReplicasWorld world(directory, 1, 3);
  ASSERT_EQ(world.CountFor(""), 1);
  ASSERT_TRUE(world.AwaitInStep(1));
  const auto replica = world.Stored().in_step(0);
  world.KillNode(replica);
  ASSERT_EQ(world.CountFor(""), 2);
  world.RunUntil([&] { return world.Stored().in_step_size() == 1 && world.Stored().in_step(0) != replica; },
                 seconds(20));
  world.KillNode(world.Home());
  EXPECT_EQ(world.CountFor(""), 3);
}

TEST(StateReplicas, AnEndedSequenceIsDroppedOnReplicas) {
  test::TemporaryDirectory directory;
  ReplicasWorld world(directory);
  ASSERT_EQ(world.CountFor("chat", true), 1);
  ASSERT_TRUE(world.AwaitInStep(1));
  ASSERT_EQ(world.CountFor("chat"), 2);
  const auto replica = world.Stored().in_step(0);
  EXPECT_THAT(world.FilesOf(replica), SizeIs(1));
  ASSERT_EQ(world.CountFor("chat", false, true), 3);
  world.Run(seconds(1));
  EXPECT_THAT(world.FilesOf(replica), IsEmpty());
}

TEST(StateReplicas, ADrainMovesTheStateAndTheNewHomeHasAReplica) {
  test::TemporaryDirectory directory;
  ReplicasWorld world(directory, 1, 3);
  ASSERT_EQ(world.CountFor(""), 1);
  ASSERT_TRUE(world.AwaitInStep(1));
  const auto home = world.Home();
  proto::AdminRequest request;
  request.mutable_drain()->set_name(home);
  request.mutable_drain()->set_drain(true);
  ASSERT_TRUE(world.Ask(request).ok());
  ASSERT_EQ(world.CountFor(""), 2);
  EXPECT_NE(world.Home(), home);
  ASSERT_TRUE(world.AwaitInStep(1));
  world.KillNode(world.Home());
  EXPECT_EQ(world.CountFor(""), 3);
}

TEST(StateReplicas, TheManagerKnowsAfterItsRestartWhoIsInStep) {
  test::TemporaryDirectory directory;
  ReplicasWorld world(directory);
  ASSERT_EQ(world.CountFor(""), 1);
  ASSERT_TRUE(world.AwaitInStep(1));
  world.StopManager();
  world.KillNode(world.Home());
  world.StartManager();
  EXPECT_EQ(world.CountFor(""), 2);
}

TEST(StateReplicas, ImagesOfEvictedStatesAreCopiedToo) {
  test::TemporaryDirectory directory;
  ReplicasWorld world(directory, 1, 2, node::StateWriteBack::kEvict);
  for (int i = 1; i <= 3; ++i) ASSERT_EQ(world.CountFor(""), i);
  ASSERT_TRUE(world.AwaitInStep(1));
  const auto home = world.Home();
  const auto replica = world.Stored().in_step(0);
  // Another function's model takes the GPU, so the state is written back.
  ASSERT_TRUE(world.Deploy("large", MiB(990), milliseconds(100), {"x"}).ok());
  world.RunUntil([&] { return !world.FilesOf(replica).empty(); }, seconds(20));
  for (int i = 0; i < 3 && world.FilesOf(replica).empty(); ++i) world.Count("large");
  world.Run(seconds(2));
  ASSERT_THAT(world.FilesOf(replica), SizeIs(1));
  world.KillNode(home);
  EXPECT_EQ(world.CountFor(""), 4);
}

// Clients that ask without a pause, while the home dies, or a node in step: no count goes back.
class ReplicasDie : public testing::TestWithParam<int> {};
TEST_P(ReplicasDie, NoCountGoesBack) {
  test::TemporaryDirectory directory;
  ReplicasWorld world(directory, 1, 3);
  std::map<std::string, std::uint64_t> under_way;
  std::map<std::string, int> counts;
  std::string dead;
  const int moment = GetParam();
  for (int step = 0; step < 400; ++step) {
    for (const char* id : {"", "a", "b"}) {
      auto& call = under_way[id];
      if (call != 0 && world.Find(call) == nullptr) continue;
      if (const int count = call == 0 ? -1 : world.CountOf(call); count >= 0) {
        ASSERT_GT(count, counts[id]) << "'" << id << "' at step " << step;
        counts[id] = count;
      }
      call = world.Call(id, counts[id] == 0);
    }
    if (step == 60 + moment) {
      dead = moment % 2 == 0 || world.Stored().in_step_size() == 0 ? world.Home() : world.Stored().in_step(0);
      world.KillNode(dead);
    }
    if (step == 320) world.RestartNode(dead, ReplicasWorld::Kept::kDisk);
    world.Run(milliseconds(50));
  }
  for (const auto& [id, count] : counts) EXPECT_GT(count, 40) << "'" << id << "' starves";
  EXPECT_EQ(world.Told("state-damaged"), "");
}
INSTANTIATE_TEST_SUITE_P(Moments, ReplicasDie, testing::Range(0, 2));

}  // namespace
}  // namespace troupe::actors

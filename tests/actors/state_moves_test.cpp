// States and sequences that move to another node when theirs drains, in a cluster under virtual time: no count has a gap,
// whatever dies in between.
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

struct MovesSetup {
  node::StateWriteBack write_back = node::StateWriteBack::kRun;
  bool on_disk = true;
};

// Two nodes. The function "sum" counts its runs, and those of each sequence.
class MovesWorld : public StateWorld {
 public:
  explicit MovesWorld(const test::TemporaryDirectory& directory, MovesSetup setup = {})
      : StateWorld(
            1, setup.write_back, GiB(1),
            [&directory, setup](NodeOptions& options) {
              if (!setup.on_disk) return;
              options.states.directory = directory.path() + "/" + options.name;
              std::filesystem::create_directories(options.states.directory);
            },
            2),
        directory_(directory.path()) {
    EXPECT_TRUE(DeployState("sum").ok());
  }

  std::uint64_t Call(const std::string& sequence, bool start = false) {
    proto::Sequence wish;
    wish.set_id(sequence);
    wish.set_start(start);
    const auto call = NextCall();
    sequence.empty() ? Infer("sum", call, seconds(20)) : Infer("sum", call, seconds(20), "", wish);
    return call;
  }
  int CountFor(const std::string& sequence, bool start = false) {
    const auto call = Call(sequence, start);
    RunUntil([&] { return Find(call) != nullptr; }, seconds(30));
    return CountOf(call);
  }
  absl::Status Drain(const std::string& node, bool drain = true, Duration limit = seconds(5)) {
    proto::AdminRequest request;
    request.mutable_drain()->set_name(node);
    request.mutable_drain()->set_drain(drain);
    return Ask(request, limit).status();
  }
  // The node that the manager's store names.
  std::string Home() {
    std::string home;
    const auto found = storage::ScanMessages<proto::PlacementRecord>(
        store(), storage::Table::kSettings, "state-home/",
        [&](std::string_view, const proto::PlacementRecord& record) { home = record.nodes(0); });
    EXPECT_TRUE(found.ok());
    return home;
  }
  std::vector<std::string> FilesOf(const std::string& node) const {
    std::vector<std::string> files;
    for (const auto& file : std::filesystem::directory_iterator(directory_ + "/" + node))
      files.push_back(file.path().filename().string());
    return files;
  }
  static std::string Other(const std::string& node) { return node == "node-1" ? "node-2" : "node-1"; }

 private:
  const std::string directory_;
};

class Moves : public testing::TestWithParam<MovesSetup> {};

TEST_P(Moves, ADrainTakesAllCountsToTheOtherNodeAndBack) {
  test::TemporaryDirectory directory;
  MovesWorld world(directory, GetParam());
  int count = 0;
  for (; count < 3; ++count) ASSERT_EQ(world.CountFor(""), count + 1);
  ASSERT_EQ(world.CountFor("left", true), 1);
  ASSERT_EQ(world.CountFor("left"), 2);
  ASSERT_EQ(world.CountFor("right", true), 1);
  for (int move = 0; move < 3; ++move) {
    const auto from = world.Home();
    ASSERT_TRUE(world.Drain(from).ok());
    ASSERT_EQ(world.CountFor(""), ++count) << "after move " << move;
    EXPECT_EQ(world.Home(), MovesWorld::Other(from));
    ASSERT_EQ(world.CountFor("left"), 3 + move);
    ASSERT_EQ(world.CountFor("right"), 2 + move);
    world.Run(seconds(1));
    if (GetParam().on_disk) {
      EXPECT_THAT(world.FilesOf(from), IsEmpty());
    }
    ASSERT_TRUE(world.Drain(from, false).ok());
    world.Run(seconds(1));
  }
  EXPECT_THAT(world.EventsOf("state-moved"),
              HasSubstr("function 'sum' version 1: its state and its sequences"));
  EXPECT_EQ(world.EventsOf("state-not-moved") + world.Told("state-lost") + world.Told("state-damaged"), "");
}

// Clients that ask without a pause, while the nodes drain in turns.
TEST_P(Moves, RequestsThatComeMeanwhileCountOnce) {
  test::TemporaryDirectory directory;
  MovesWorld world(directory, GetParam());
  std::map<std::string, std::uint64_t> under_way;
  std::map<std::string, int> counts;
  for (int step = 0; step < 16000; ++step) {
    for (const char* id : {"", "a", "b", "c"}) {
      auto& call = under_way[id];
      if (call != 0 && world.Find(call) == nullptr) continue;
      if (call != 0) {
        ASSERT_EQ(world.CountOf(call), ++counts[id])
            << "'" << id << "' at step " << step << ": " << world.Find(call)->message();
      }
      call = world.Call(id, counts[id] == 0);
    }
    if (step % 2000 == 500) {
      ASSERT_TRUE(world.Drain(world.Home()).ok());
    }
    if (step % 2000 == 1500) {
      ASSERT_TRUE(world.Drain(MovesWorld::Other(world.Home()), false).ok());
    }
    world.Run(microseconds(500));
  }
  for (const auto& [id, count] : counts) EXPECT_GT(count, 100) << "'" << id << "' starves";
  EXPECT_EQ(world.Told("state-lost") + world.Told("state-damaged"), "");
}

INSTANTIATE_TEST_SUITE_P(Setups, Moves,
                         testing::Values(MovesSetup{}, MovesSetup{.on_disk = false},
                                         MovesSetup{.write_back = node::StateWriteBack::kEvict}));

// Something dies at each moment of a move, and comes back; then the drained node serves again, too.
enum class Dies { kOldHome, kNewHome, kManager };
class MovesDie : public testing::TestWithParam<Dies> {
 protected:
  static void Kill(MovesWorld& world, const std::string& home) {
    if (GetParam() == Dies::kManager) return world.StopManager();
    world.KillNode(GetParam() == Dies::kOldHome ? home : MovesWorld::Other(home));
  }
  static void Restart(MovesWorld& world, const std::string& home) {
    if (GetParam() == Dies::kManager) return world.StartManager();
    world.RestartNode(GetParam() == Dies::kOldHome ? home : MovesWorld::Other(home), MovesWorld::Kept::kDisk);
  }
};

TEST_P(MovesDie, NothingAcknowledgedIsLostAndNothingCountsTwice) {
  std::map<std::string, int> ended_at;
  for (int moment = 0; moment < 48; ++moment) {
    test::TemporaryDirectory directory;
    MovesWorld world(directory);
    ASSERT_EQ(world.CountFor(""), 1);
    ASSERT_EQ(world.CountFor("left", true), 1);
    ASSERT_EQ(world.CountFor("left"), 2);
    const auto home = world.Home();
    ASSERT_TRUE(world.Drain(home).ok());
    world.Run(milliseconds(5) / 2 * moment);
    Kill(world, home);
    world.Run(milliseconds(20));
    Restart(world, home);
    world.Run(seconds(8));
    ++ended_at[world.Home() == home ? "old" : "new"];
    if (world.Home() == home) {
      ASSERT_TRUE(world.Drain(home, false).ok());
    }
    ASSERT_EQ(world.CountFor(""), 2) << "at moment " << moment;
    ASSERT_EQ(world.CountFor("left"), 3) << "at moment " << moment;
    ASSERT_EQ(world.Told("state-damaged"), "") << "at moment " << moment;
  }
  EXPECT_GT(ended_at["new"], 0);
}

INSTANTIATE_TEST_SUITE_P(Who, MovesDie, testing::Values(Dies::kOldHome, Dies::kNewHome, Dies::kManager));

// The store holds its answer back while the old home is started again: it has given up the state, and nothing but the
// manager makes it the home again.
TEST(StateMoves, TheOldHomeBeginsNothingWhileTheStoreDecides) {
  test::TemporaryDirectory directory;
  MovesWorld world(directory);
  ASSERT_EQ(world.CountFor(""), 1);
  const auto home = world.Home();
  world.store().Hold();
  ASSERT_FALSE(world.Drain(home, true, milliseconds(1)).ok()) << "the store has not answered";
  world.RunUntil([&] { return world.store().held() == 2; }, seconds(5));
  ASSERT_EQ(world.store().held(), 2u) << "the drain, and the new home";
  ASSERT_TRUE(world.store().CompleteNext());
  world.KillNode(home);
  world.RestartNode(home, MovesWorld::Kept::kDisk);
  const auto call = world.Call("");
  world.Run(seconds(3));
  EXPECT_EQ(world.Find(call), nullptr) << "two nodes would have the state";
  world.store().Release();
  world.RunUntil([&] { return world.Find(call) != nullptr; }, seconds(15));
  EXPECT_EQ(world.CountOf(call), 2);
  EXPECT_EQ(world.Home(), MovesWorld::Other(home));
}

}  // namespace
}  // namespace troupe::actors

// Sequences of requests of a function with state, in a cluster under virtual time: each is a chat whose client asks, waits
// for the answer, and asks again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/actors/state_world.hpp"
#include "tests/temporary_directory.hpp"

namespace troupe::actors {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;

// One client; the state is the number of the sequence's runs, which each answer tells.
class Chat {
 public:
  Chat(StateWorld& world, std::string id, int length) : world_(world), id_(std::move(id)), length_(length) {}

  // Looks for the answer, and asks again. The text says what was wrong.
  std::string Step() {
    if (call_ != 0 && world_.Find(call_) == nullptr) return "";
    if (call_ != 0) {
      const auto& reply = *world_.Find(call_);
      if (world_.CountOf(call_) != ++count_)
        return absl::StrCat(id_, " has ", world_.CountOf(call_), " runs instead of ", count_, ": ",
                            reply.message());
      ++answers;
      if (count_ == length_) count_ = 0;
    }
    Ask();
    return "";
  }

  int answers = 0;

 private:
  void Ask() {
    proto::Sequence sequence;
    sequence.set_id(id_);
    sequence.set_start(count_ == 0);
    sequence.set_end(count_ + 1 == length_);
    call_ = world_.NextCall();
    world_.Infer("sum", call_, seconds(10), "", sequence);
  }

  StateWorld& world_;
  const std::string id_;
  const int length_;
  std::uint64_t call_ = 0;
  int count_ = 0;
};

struct ChatWorld {
  node::StateWriteBack write_back = node::StateWriteBack::kRun;
  std::size_t gpus = 2;
  bool kill = false;
  std::uint64_t images = 20;  // that there is memory for, of 12 chats and the function
};

class ManyChats : public testing::TestWithParam<ChatWorld> {};

TEST_P(ManyChats, EachCountsItsOwnRunsWhateverHappens) {
  const ChatWorld setup = GetParam();
  test::TemporaryDirectory directory;
  StateWorld world(setup.gpus, setup.write_back, GiB(1), [&](NodeOptions& options) {
    options.states.capacity = Bytes(16) * setup.images;
    options.states.directory = directory.path();
  });
  ASSERT_TRUE(world.DeployState("sum").ok());
  std::vector<Chat> chats;
  for (int i = 0; i < 12; ++i) chats.emplace_back(world, absl::StrCat("chat-", i), 3 + i % 5);
  for (int step = 0; step < 6000; ++step) {
    for (auto& chat : chats) {
      const auto wrong = chat.Step();
      ASSERT_EQ(wrong, "") << "at step " << step;
    }
    if (setup.kill && step % 500 == 250)
      for (auto& worker : world.node("node-1").workers)
        if (!worker->life.states.empty() && (step / 500 + chats[0].answers) % 2 == 0) worker->kill();
    world.Run(microseconds(500));
  }
  for (const auto& chat : chats) EXPECT_GT(chat.answers, 8) << "none starves";
  EXPECT_EQ(world.Told("state-damaged") + world.Told("state-lost") + world.Told("state-not-saved"), "");
  // With the function all goes.
  proto::AdminRequest remove;
  remove.mutable_remove()->mutable_key()->set_name("sum");
  ASSERT_TRUE(world.Ask(remove).ok());
  world.Run(seconds(5));
  std::vector<std::string> left;
  for (const auto& file : std::filesystem::directory_iterator(directory.path()))
    left.push_back(file.path().filename().string());
  EXPECT_THAT(left, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Worlds, ManyChats,
                         testing::Values(ChatWorld{}, ChatWorld{.gpus = 1}, ChatWorld{.kill = true},
                                         ChatWorld{.images = 5}, ChatWorld{.kill = true, .images = 5},
                                         ChatWorld{.write_back = node::StateWriteBack::kEvict},
                                         ChatWorld{.write_back = node::StateWriteBack::kEvict, .images = 5}));

TEST(Sequences, ANodeThatIsRestartedFindsThemOnItsDisk) {
  test::TemporaryDirectory directory;
  StateWorld world(1, node::StateWriteBack::kRun, GiB(1),
                   [&](NodeOptions& options) { options.states.directory = directory.path(); });
  ASSERT_TRUE(world.DeployState("sum").ok());
  const auto ask = [&](const char* id, bool start) {
    proto::Sequence sequence;
    sequence.set_id(id);
    sequence.set_start(start);
    const auto call = world.NextCall();
    world.Infer("sum", call, seconds(10), "", sequence);
    world.RunUntil([&] { return world.Find(call) != nullptr; }, seconds(20));
    return call;
  };
  EXPECT_EQ(world.CountOf(ask("a", true)), 1);
  EXPECT_EQ(world.CountOf(ask("b", true)), 1);
  EXPECT_EQ(world.CountOf(ask("a", false)), 2);
  world.KillNode("node-1");
  world.RestartNode("node-1", sim::World::Kept::kDisk);
  world.Run(seconds(2));
  EXPECT_EQ(world.CountOf(ask("a", false)), 3);
  EXPECT_EQ(world.CountOf(ask("b", false)), 2);
  const auto* refused = world.Find(ask("c", false));
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(refused->message(), HasSubstr("no sequence 'c'"));
}

TEST(Sequences, AreOfferedByFunctionsWithStateOnly) {
  StateWorld world(1);
  ASSERT_TRUE(world.Deploy("plain", MiB(100)).ok());
  proto::Sequence sequence;
  sequence.set_id("a");
  const auto call = world.NextCall();
  world.Infer("plain", call, seconds(10), "", sequence);
  world.Run(seconds(1));
  ASSERT_NE(world.Find(call), nullptr);
  EXPECT_EQ(world.Find(call)->code(), static_cast<int>(absl::StatusCode::kUnimplemented));
}

}  // namespace
}  // namespace troupe::actors

#include "gpu/worker/adoption.hpp"

#include "gpu/worker/control_page.hpp"
#include "gpu/worker/link_reader.hpp"
#include "gpu/worker/worker_process.hpp"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

using std::chrono::seconds;

TEST(AdoptionGate, TheNewestDaemonWins) {
  AdoptionGate gate;
  EXPECT_TRUE(gate.Admit(5).ok());
  gate.Adopted(5);
  EXPECT_EQ(gate.Admit(5).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(gate.Admit(4).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(gate.Admit(6).ok());
  gate.Lost();
  EXPECT_FALSE(gate.adopted());
  EXPECT_TRUE(gate.Admit(5).ok());
  EXPECT_EQ(gate.Admit(4).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(AdoptionGate, ItsOwnDaemonMayComeAgainToNameItsKey) {
  AdoptionGate gate;
  gate.Adopted(5);
  EXPECT_TRUE(gate.Admit(5, true).ok());
  EXPECT_EQ(gate.Admit(4, true).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ServedKey, AWorkerServesOneUntilItsEnd) {
  ServedKey serves;
  EXPECT_TRUE(serves.Admit("", true).ok()) << "a daemon with or without a key may come again";
  EXPECT_TRUE(serves.Admit("tenant/a", false).ok());
  EXPECT_FALSE(serves.Admit("tenant/a", true).ok()) << "the worker has models of a daemon without this key";
  EXPECT_TRUE(serves.Assigns("tenant/a"));
  serves.Serve("tenant/a");
  EXPECT_FALSE(serves.Assigns("tenant/a"));
  EXPECT_TRUE(serves.Admit("tenant/a", true).ok());
  for (const char* other : {"", "tenant/b", "function/a"})
    EXPECT_EQ(serves.Admit(other, false).code(), absl::StatusCode::kFailedPrecondition) << other;
}

ControlSnapshot Busy(Lane lane, std::uint64_t order, std::uint64_t progress, std::uint64_t heartbeat) {
  ControlSnapshot snapshot;
  snapshot.heartbeat = heartbeat;
  snapshot.lanes[static_cast<std::size_t>(lane)] = {true, order, progress};
  return snapshot;
}
Time AtSecond(int s) {
  return Time(seconds(s));
}

TEST(ProgressWatch, ABusyLaneThatStandsStillIsAHang) {
  ProgressWatch watch({seconds(2), seconds(10), seconds(100)});
  EXPECT_EQ(watch.Hung(AtSecond(0)), std::nullopt);
  watch.Observe(Busy(Lane::kCompute, 17, 3, 1), AtSecond(0));
  watch.Observe(Busy(Lane::kCompute, 17, 3, 2), AtSecond(10));
  EXPECT_EQ(watch.Hung(AtSecond(10)), std::nullopt);
  watch.Observe(Busy(Lane::kCompute, 17, 3, 3), AtSecond(11));
  ASSERT_TRUE(watch.Hung(AtSecond(11)).has_value());
  EXPECT_NE(watch.Hung(AtSecond(11))->find("compute stands still at order 17"), std::string::npos);
  watch.Observe(Busy(Lane::kCompute, 17, 4, 4), AtSecond(12));
  EXPECT_EQ(watch.Hung(AtSecond(12)), std::nullopt);
  watch.Observe(Busy(Lane::kCompute, 18, 4, 5), AtSecond(22));
  EXPECT_EQ(watch.Hung(AtSecond(22)), std::nullopt);
}

// Runs that wait for their weights, and orders that are answered, must not hide a copy that does not arrive.
TEST(ProgressWatch, ACopyThatStandsStillIsNamedWhateverElseMoves) {
  ProgressWatch watch({seconds(2), seconds(10), seconds(100)});
  const auto at = [](std::uint64_t s) {
    ControlSnapshot snapshot = Busy(Lane::kCopyIn, 17, 3, s);
    snapshot.lanes[static_cast<std::size_t>(Lane::kCompute)] = {true, 18, s};
    snapshot.orders = snapshot.outcomes = s;
    return snapshot;
  };
  for (int s = 0; s <= 11; ++s) watch.Observe(at(static_cast<std::uint64_t>(s)), AtSecond(s));
  EXPECT_NE(at(10).progress(), at(11).progress());
  ASSERT_TRUE(watch.Hung(AtSecond(11)).has_value());
  EXPECT_EQ(*watch.Hung(AtSecond(11)), "copy in stands still at order 17 for 11 s");
}

TEST(ProgressWatch, AnIdleLaneNeverHangsAndPreparingMayTakeLonger) {
  ProgressWatch watch({seconds(2), seconds(10), seconds(100)});
  for (int s = 0; s < 60; ++s) {
    ControlSnapshot snapshot = Busy(Lane::kPrepare, 1, 0, static_cast<std::uint64_t>(s));
    watch.Observe(snapshot, AtSecond(s));
    EXPECT_EQ(watch.Hung(AtSecond(s)), std::nullopt);
  }
}

TEST(ProgressWatch, AStoppedHeartIsAHang) {
  ProgressWatch watch({seconds(2), seconds(10), seconds(100)});
  watch.Observe({}, AtSecond(0));
  watch.Observe({}, AtSecond(3));
  ASSERT_TRUE(watch.Hung(AtSecond(3)).has_value());
  EXPECT_NE(watch.Hung(AtSecond(3))->find("main loop"), std::string::npos);
}

TEST(ControlSnapshot, ProgressMovesWithTheHeartOnlyWhileTheEnginesAreIdle) {
  ControlSnapshot idle;
  const auto before = idle.progress();
  idle.heartbeat = 5;
  EXPECT_NE(idle.progress(), before);
  EXPECT_EQ(Busy(Lane::kCompute, 1, 7, 1).progress(), Busy(Lane::kCompute, 1, 7, 2).progress());
  EXPECT_NE(Busy(Lane::kCompute, 1, 7, 1).progress(), Busy(Lane::kCompute, 1, 8, 1).progress());
  EXPECT_NE(Busy(Lane::kPrepare, 1, 7, 1).progress(), Busy(Lane::kPrepare, 1, 7, 2).progress());
  ControlSnapshot hangs = Busy(Lane::kCompute, 1, 7, 1);
  hangs.outcomes = 100;
  hangs.lanes[static_cast<std::size_t>(Lane::kCopyIn)].progress = 100;
  EXPECT_EQ(hangs.progress(), Busy(Lane::kCompute, 1, 7, 1).progress())
      << "the work of other lanes is not progress of this one";
}

TEST(ControlPage, LastWordsAreCutCleanedAndReplaced) {
  const auto memory = *CreateControlPage(42);
  EXPECT_TRUE(CheckControlPage(memory).ok());
  EXPECT_EQ(ReadControlPage(memory).last_words, "");
  WriteLastWords(PageOf(memory), "first");
  WriteLastWords(PageOf(memory), std::string("two\nlines\x01") + std::string(1000, 'x'));
  const ControlSnapshot snapshot = ReadControlPage(memory);
  EXPECT_EQ(snapshot.pid, 42);
  EXPECT_EQ(snapshot.last_words.size(), ControlPage::kLastWords);
  EXPECT_EQ(snapshot.last_words.substr(0, 10), "two?lines?");
  // A dying process may leave any length in the control page.
  PageOf(memory).last_words_length = 4'000'000'000;
  EXPECT_EQ(ReadControlPage(memory).last_words.size(), ControlPage::kLastWords);
  PageOf(memory).magic = 1;
  EXPECT_FALSE(CheckControlPage(memory).ok());
}

TEST(WorkerDeath, SaysHowAndWhy) {
  WorkerDeath death;
  EXPECT_EQ(death.ToString(), "ended");
  death.end = transport::ProcessEnd{false, 5};
  death.last_words = "bye";
  EXPECT_EQ(death.ToString(), "exit code 5 (lease expired); last words: bye");
}

// A single thread never waits for another. Where not every thread has a core, a thread that waits awake takes the core of a
// thread that computes.
TEST(WorkerCommand, ThreadsWaitAwakeWhereEachHasACore) {
  const auto awake = [](std::uint32_t threads, bool cores_for_all) {
    WorkerCommand command;
    command.threads = threads;
    command.cores_for_all = cores_for_all;
    const auto environment = command.Environment();
    return std::ranges::count(environment, "GOMP_SPINCOUNT", [](const auto& entry) { return entry.first; });
  };
  EXPECT_EQ(awake(2, true), 1);
  EXPECT_EQ(awake(2, false), 0);
  EXPECT_EQ(awake(1, true), 0);
}

TEST(WorkerCommand, PassesEveryFlag) {
  WorkerCommand command;
  command.program = "/p";
  command.socket = "/s";
  command.node = "n";
  command.gpu = 3;
  command.compute = ComputeMode::kTimed;
  command.addresses = WeightAddresses::kMapped;
  command.repeated = RepeatedLaunch::kStepByStep;
  command.kernels = KernelForm::kPersistent;
  command.profile = "/f";
  command.allow_faults = true;
  command.concurrency = 5;
  const auto arguments = command.Arguments();
  for (const char* expected : {"/p", "--socket", "/s", "--gpu", "3", "timed", "--profile", "/f",
                               "--allow-faults", "--concurrency", "5"}) {
    EXPECT_NE(std::find(arguments.begin(), arguments.end(), expected), arguments.end()) << expected;
  }
  const auto after = [&](const char* flag) {
    return *(std::find(arguments.begin(), arguments.end(), flag) + 1);
  };
  EXPECT_EQ(after("--compute"), "timed");
  EXPECT_EQ(after("--addresses"), "mapped");
  EXPECT_EQ(after("--cuda-graphs"), "off");
  EXPECT_EQ(after("--cuda-kernels"), "persistent");
}

}  // namespace
}  // namespace troupe::gpu

#include "node/runtimes/executor_machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::node::executor_machine_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using K = ExecutorActionKind;
using S = ExecutorState;

class ExecutorMachineTest : public testing::Test {
 protected:
  std::vector<K> On(const ExecutorEvent& event) {
    std::vector<K> kinds;
    for (const ExecutorAction& action : machine.On(event, now)) {
      kinds.push_back(action.kind);
      why = action.why;
    }
    return kinds;
  }
  // Goes to the next due time and ticks.
  std::vector<K> Due() {
    EXPECT_NE(machine.NextDue(), Time::max());
    now = std::max(now, machine.NextDue());
    return On(Tick{});
  }
  void BringUp() {
    if (machine.state() == S::kAbsent) {
      EXPECT_THAT(On(Begin{}), ElementsAre(K::kSpawn, K::kReportStarting));
    }
    if (machine.state() == S::kBackoff) {
      EXPECT_THAT(Due(), ElementsAre(K::kSpawn, K::kReportStarting));
    }
    EXPECT_THAT(On(Listening{}), ElementsAre(K::kAdopt));
    EXPECT_THAT(On(AdoptSucceeded{}), ElementsAre(K::kReportReady));
    EXPECT_EQ(machine.state(), S::kReady);
  }
  ExecutorMachine machine;
  Time now{};
  std::string why;
};

TEST_F(ExecutorMachineTest, StartsAndIsReady) {
  BringUp();
  EXPECT_EQ(machine.NextDue(), Time::max());
  EXPECT_EQ(machine.restarts(), 0u);
}

TEST_F(ExecutorMachineTest, AdoptsALivingWorkerWithoutStartingOne) {
  EXPECT_THAT(On(Begin{.worker_listens = true}), ElementsAre(K::kAdopt));
  EXPECT_THAT(On(AdoptSucceeded{}), ElementsAre(K::kReportReady));
}

TEST_F(ExecutorMachineTest, BackOffDoublesUpToAMinuteAndStartsAnewAfterHealth) {
  BringUp();
  EXPECT_THAT(On(Exited{.signal = 11}), ElementsAre(K::kReportLost, K::kSpawn, K::kReportStarting))
      << "the first time, at once";
  EXPECT_EQ(machine.backoff(), milliseconds(100));
  Duration expected = milliseconds(200);
  for (int i = 1; i < 14; ++i) {
    BringUp();
    now += milliseconds(10);
    EXPECT_THAT(On(Exited{.signal = 11}), ElementsAre(K::kReportLost));
    EXPECT_EQ(machine.state(), S::kBackoff);
    EXPECT_EQ(machine.backoff(), expected) << i;
    EXPECT_EQ(machine.NextDue(), now + expected);
    expected = std::min<Duration>(expected * 2, seconds(60));
  }
  EXPECT_EQ(machine.backoff(), seconds(60));
  EXPECT_EQ(machine.restarts(), 14u);
  BringUp();
  now += seconds(31);
  EXPECT_THAT(On(Exited{.signal = 9}), ElementsAre(K::kReportLost, K::kSpawn, K::kReportStarting));
  EXPECT_EQ(machine.backoff(), milliseconds(100));
}

TEST_F(ExecutorMachineTest, AWorkerThatWasNeverReadyIsNotStartedAgainAtOnce) {
  On(Begin{});
  EXPECT_THAT(On(Exited{.code = 1}), IsEmpty());
  EXPECT_EQ(machine.state(), S::kBackoff);
  EXPECT_EQ(machine.NextDue(), now + milliseconds(100));
}

// Requests do not wait for it then, and it comes back by itself.
TEST_F(ExecutorMachineTest, AWorkerThatDoesNotComeUpThreeTimesMakesItsGpuUnfitUntilOneDoes) {
  EXPECT_THAT(On(Begin{}), ElementsAre(K::kSpawn, K::kReportStarting));
  EXPECT_THAT(On(Exited{.code = 1}), IsEmpty());
  EXPECT_THAT(Due(), ElementsAre(K::kSpawn, K::kReportStarting));
  EXPECT_THAT(On(Exited{.code = 1}), IsEmpty());
  EXPECT_THAT(Due(), ElementsAre(K::kSpawn, K::kReportStarting));
  EXPECT_THAT(On(Exited{.code = 1}), ElementsAre(K::kReportUnfit));
  EXPECT_THAT(why, HasSubstr("exited with code 1"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Due(), ElementsAre(K::kSpawn)) << "a start is no promise any more";
    EXPECT_THAT(On(Exited{.code = 1}), IsEmpty()) << "it is told once";
  }
  // An operator says that it is mended: what it lacks now is told anew.
  EXPECT_THAT(On(Restart{"an operator says so"}), ElementsAre(K::kSpawn, K::kReportStarting));
  EXPECT_THAT(Due(), ElementsAre(K::kKill, K::kReportUnfit));
  EXPECT_THAT(why, HasSubstr("did not listen"));
  On(Exited{.signal = 9});
  Due();
  On(Listening{});
  EXPECT_THAT(On(AdoptSucceeded{}), ElementsAre(K::kReportReady));
  now += seconds(31);
  EXPECT_THAT(On(Exited{.signal = 9}), ElementsAre(K::kReportLost, K::kSpawn, K::kReportStarting));
}

TEST_F(ExecutorMachineTest, AWorkerThatDoesNotListenInTimeMakesItsGpuUnfitAtOnce) {
  BringUp();
  now += seconds(31);
  On(Exited{.signal = 9});
  EXPECT_THAT(Due(), ElementsAre(K::kKill, K::kReportUnfit));
  EXPECT_THAT(why, HasSubstr("did not listen within"));
}

TEST_F(ExecutorMachineTest, HealthIsEarnedByATickToo) {
  BringUp();
  On(Exited{.code = 1});
  BringUp();
  EXPECT_EQ(machine.NextDue(), now + seconds(30));
  EXPECT_THAT(Due(), IsEmpty());
  EXPECT_EQ(machine.backoff(), Duration::zero());
  EXPECT_EQ(machine.NextDue(), Time::max());
}

TEST_F(ExecutorMachineTest, AHungWorkerIsKilledAndStartedAgain) {
  BringUp();
  EXPECT_THAT(On(Progress{.busy = true, .progress = 1}), IsEmpty());
  EXPECT_EQ(machine.NextDue(), now + seconds(5));
  now += seconds(4);
  On(Progress{.busy = true, .progress = 2});  // the worker makes progress
  EXPECT_EQ(machine.NextDue(), now + seconds(5));
  now += seconds(4);
  On(Progress{.busy = true, .progress = 2});
  EXPECT_THAT(Due(), ElementsAre(K::kReportLost, K::kKill));
  EXPECT_EQ(machine.state(), S::kHung);
  EXPECT_THAT(why, HasSubstr("busy without progress for 5 s"));
  EXPECT_THAT(Due(), ElementsAre(K::kKill));  // the worker is still there, so it is killed again
  EXPECT_THAT(On(Exited{.signal = 9}),
              ElementsAre(K::kSpawn, K::kReportStarting));  // its end was reported already
  EXPECT_THAT(machine.reason(), HasSubstr("busy without progress"));
}

TEST_F(ExecutorMachineTest, IdleIsNoHang) {
  BringUp();
  On(Progress{.busy = true, .progress = 7});
  now += seconds(3);
  On(Progress{.busy = false, .progress = 7});
  EXPECT_EQ(machine.NextDue(), Time::max());
  now += seconds(100);
  On(Progress{.busy = true, .progress = 7});  // new work counts from now
  EXPECT_EQ(machine.NextDue(), now + seconds(5));
}

TEST_F(ExecutorMachineTest, ADeviceThatIsToldToBeUnfitIsLeftAloneUntilAnOperatorActs) {
  BringUp();
  EXPECT_THAT(On(DeviceUnfit{"critical error Xid 79"}),
              ElementsAre(K::kReportLost, K::kKill, K::kReportUnfit));
  EXPECT_EQ(why, "critical error Xid 79");
  EXPECT_EQ(machine.state(), S::kUnfit);
  EXPECT_THAT(On(Exited{.signal = 9}), IsEmpty());
  EXPECT_THAT(On(DeviceUnfit{"again"}), IsEmpty());
  EXPECT_EQ(machine.NextDue(), Time::max());
  EXPECT_EQ(machine.reason(), "critical error Xid 79");
  EXPECT_THAT(On(Restart{"an operator asked for it"}), ElementsAre(K::kSpawn, K::kReportStarting));
  EXPECT_THAT(On(DeviceUnfit{"still"}), ElementsAre(K::kKill, K::kReportUnfit))
      << "the worker was not ready yet";
}

TEST_F(ExecutorMachineTest, SomeExitCodesMeanUnfit) {
  struct Case {
    int code;
    bool unfit;
  };
  for (const Case& c : {Case{0, false},
                        {1, false},
                        {2, true},
                        {3, false},
                        {4, true},
                        {5, false},
                        {6, false},
                        {7, true},
                        {8, true},
                        {9, true},
                        {10, true},
                        {11, false},
                        {12, false},
                        {13, true},
                        {134, false}}) {
    machine = ExecutorMachine();
    On(Begin{});
    const auto actions = On(Exited{.code = c.code, .last_words = "no such device"});
    EXPECT_EQ(machine.state(), c.unfit ? S::kUnfit : S::kBackoff) << c.code;
    EXPECT_EQ(actions, c.unfit ? std::vector<K>{K::kReportUnfit} : std::vector<K>{}) << c.code;
    EXPECT_THAT(machine.reason(), HasSubstr("no such device"));
  }
  machine = ExecutorMachine();
  BringUp();
  EXPECT_THAT(On(Exited{.code = kWorkerExitNoDevice}), ElementsAre(K::kReportLost, K::kReportUnfit));
  EXPECT_EQ(machine.NextDue(), Time::max());
  EXPECT_THAT(On(Restart{"an operator says so"}), ElementsAre(K::kSpawn, K::kReportStarting));
}

TEST_F(ExecutorMachineTest, SlowStartAndFailedAdoption) {
  On(Begin{});
  EXPECT_THAT(Due(), ElementsAre(K::kKill, K::kReportUnfit));
  EXPECT_THAT(why, HasSubstr("did not listen within 20 s"));
  On(Exited{.signal = 9});
  EXPECT_THAT(Due(), ElementsAre(K::kSpawn));
  On(Listening{});
  EXPECT_THAT(Due(), ElementsAre(K::kKill));
  EXPECT_THAT(why, HasSubstr("did not answer"));
  On(Exited{.signal = 9});
  EXPECT_EQ(machine.backoff(), milliseconds(200));
  Due();
  On(Listening{});
  EXPECT_THAT(On(AdoptFailed{"wrong version"}), ElementsAre(K::kKill));
  EXPECT_THAT(machine.reason(), HasSubstr("wrong version"));
}

TEST_F(ExecutorMachineTest, RestartAndStop) {
  BringUp();
  EXPECT_THAT(On(Restart{"killed by an operator"}), ElementsAre(K::kReportLost, K::kKill));
  On(Exited{.signal = 9});
  EXPECT_EQ(machine.reason(), "killed by an operator");
  BringUp();
  EXPECT_THAT(On(Stop{}), ElementsAre(K::kShutDown));
  EXPECT_THAT(On(Stop{}), IsEmpty());
  EXPECT_THAT(Due(), ElementsAre(K::kKill));
  EXPECT_THAT(On(Exited{.signal = 9}), IsEmpty());
  EXPECT_EQ(machine.state(), S::kAbsent);
  EXPECT_EQ(machine.NextDue(), Time::max());
}

TEST_F(ExecutorMachineTest, EventsOutOfPlaceChangeNothing) {
  for (const ExecutorEvent& event :
       std::vector<ExecutorEvent>{Listening{}, AdoptSucceeded{}, AdoptFailed{"x"}, Exited{},
                                  Progress{true, 1}, Restart{"x"}, Stop{}, Tick{}}) {
    EXPECT_THAT(On(event), IsEmpty());
    EXPECT_EQ(machine.state(), S::kAbsent);
  }
  BringUp();
  for (const ExecutorEvent& event :
       std::vector<ExecutorEvent>{Begin{}, Listening{}, AdoptSucceeded{}, AdoptFailed{"x"}, Tick{}}) {
    EXPECT_THAT(On(event), IsEmpty());
    EXPECT_EQ(machine.state(), S::kReady);
  }
}

}  // namespace
}  // namespace troupe::node::executor_machine_test

// Plans of faults, and `chaos run` against a cluster of canned answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "shell/chaos_plan.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using Fault = proto::InjectFault;
using Request = proto::AdminRequest;

constexpr char kPlan[] = R"(# of a staging cluster
faults:
  - {at: 2s, fault: stop-daemon, member: gateway-0, for: 500ms}
  - {at: 1s, fault: kill-worker, member: node-0, gpu: 1}
settle: 30s
)";

TEST(ChaosPlan, IsReadInTheOrderOfItsTimes) {
  const auto plan = ParseChaosPlan(kPlan);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->faults.size(), 2U);
  EXPECT_EQ(plan->faults[0].at, seconds(1));
  EXPECT_EQ(DescribeFault(plan->faults[0].fault), "kill-worker at node-0/1");
  EXPECT_EQ(plan->faults[1].fault.kind(), Fault::STOP_DAEMON);
  EXPECT_EQ(plan->faults[1].fault.duration_ns(), 500'000'000);
  EXPECT_EQ(DescribeFault(plan->faults[1].fault), "stop-daemon at gateway-0 for 500 ms");
  EXPECT_EQ(plan->settle, seconds(30));
}

TEST(ChaosPlan, EveryMistakeIsToldWithItsLine) {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "line 1: a plan is a mapping"},
      {"faults: []", "line 1: a plan has a list 'faults'"},
      {"settle: 1s", "a plan has a list 'faults'"},
      {"faults:\n  - {at: 1s, fault: kill-worker, member: n, gpu: 0}\nsettle: soon",
       "line 3: 'settle' is a time"},
      {"faults:\n  - {fault: kill-daemon, member: n}", "line 2: a fault needs 'at'"},
      {"faults:\n  - {at: -1s, fault: kill-daemon, member: n}", "line 2: 'at' is a time"},
      {"faults:\n  - {at: 1s, fault: kill-daemon}", "line 2: a fault needs 'member'"},
      {"faults:\n  - {at: 1s, member: n}", "line 2: a fault needs 'fault'"},
      {"faults:\n  - {at: 1s, fault: unplug, member: n}",
       "line 2: there is no fault 'unplug'; there are kill-worker"},
      {"faults:\n  - {at: 1s, fault: KILL_DAEMON, member: n}", "there is no fault 'KILL_DAEMON'"},
      {"faults:\n  - {at: 1s, fault: kill-worker, member: n}", "line 2: kill-worker needs 'gpu'"},
      {"faults:\n  - {at: 1s, fault: kill-worker, member: n, gpu: first}", "line 2: kill-worker needs 'gpu'"},
      {"faults:\n  - {at: 1s, fault: kill-daemon, member: n, gpu: 0}", "it has no 'gpu'"},
      {"faults:\n  - {at: 1s, fault: kill-daemon, member: n, for: 1s}", "it has no 'for'"},
      {"faults:\n  - {at: 1s, fault: stop-daemon, member: n}", "line 2: stop-daemon needs 'for'"},
      {"faults:\n  - {at: 1s, fault: cut-tensors, member: n, for: 0s}", "line 2: 'for' is up to"},
      {"faults:\n  - {at: 1s, fault: cut-tensors, member: n, for: 11m}", "line 2: 'for' is up to"},
      {"faults:\n  - {at: 1s, fault: kill-daemon, member: n, when: 2s}", "line 2: a fault has no 'when'"},
      {"faults:\n  - kill-daemon", "line 2: a fault is a mapping"},
      {"faults: [", "not valid YAML"},
      {"faults: []\n---\nfaults: []\n", "a second document begins here"},
  };
  for (const auto& [yaml, what] : wrong) {
    const auto plan = ParseChaosPlan(yaml);
    EXPECT_TRUE(absl::IsInvalidArgument(plan.status())) << yaml;
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr(what)) << yaml;
  }
  const auto both =
      ParseChaosPlan("faults:\n  - {at: x, fault: y, member: n}\n  - {at: 1s, fault: kill-daemon}\n");
  EXPECT_THAT(
      std::string(both.status().message()),
      testing::AllOf(HasSubstr("line 2: 'at'"), HasSubstr("line 2: there is no"), HasSubstr("line 3:")));
}

struct ChaosRunTest : testing::Test {
  ChaosRunTest() {
    std::ofstream(path()) << kPlan;
    troupe.console.wakes.assign(1000, Console::Wake::kTimeout);
  }
  [[nodiscard]] std::string path() const { return directory / "plan.yaml"; }
  static proto::AdminReply Status(bool node_alive, bool gpu_ready = true) {
    proto::AdminReply reply;
    for (const auto* name : {"node-0", "gateway-0"}) {
      auto& member = *reply.mutable_status()->add_members()->mutable_member();
      member.set_name(name);
      member.set_state(node_alive || std::string(name) != "node-0" ? proto::MEMBER_ALIVE
                                                                   : proto::MEMBER_DEAD);
    }
    auto& gpu = *reply.mutable_status()->mutable_members(0)->mutable_member()->add_gpus();
    gpu.set_index(1);
    gpu.set_state(gpu_ready ? "ready" : "backoff");
    return reply;
  }
  static proto::AdminReply Event(std::uint64_t sequence, const std::string& member, const std::string& kind) {
    proto::AdminReply reply;
    auto& event = *reply.add_events();
    event.set_sequence(sequence);
    event.set_member(member);
    event.set_kind(kind);
    return reply;
  }
  [[nodiscard]] std::vector<Request> Of(Request::RequestCase kind) const {
    std::vector<Request> out;
    std::copy_if(troupe.cluster.asked.begin(), troupe.cluster.asked.end(), std::back_inserter(out),
                 [&](const Request& request) { return request.request_case() == kind; });
    return out;
  }

  const test::TemporaryDirectory directory;
  Harness troupe;
};

TEST_F(ChaosRunTest, InjectsEachFaultInItsTimeAndTellsWhatBecameOfIt) {
  auto& cluster = troupe.cluster;
  cluster.Answer(Request::kListEvents,
                 Event(7, "node-0", "worker-ready"));  // the newest event before the plan began
  for (int look = 0; look < 12; ++look) cluster.Answer(Request::kListEvents, proto::AdminReply());
  cluster.Answer(Request::kListEvents, Event(8, "node-0", "worker-down"));
  cluster.Answer(Request::kListEvents, Event(9, "gateway-0", "member-suspect"));
  cluster.Answer(Request::kListEvents, proto::AdminReply());
  for (int look = 0; look < 13; ++look) cluster.Answer(Request::kClusterStatus, Status(true));
  cluster.Answer(Request::kClusterStatus, Status(true, false));
  cluster.Answer(Request::kClusterStatus, Status(true));
  EXPECT_EQ(troupe.Run("chaos run " + path() + " --yes"), ExitCode::kOk) << troupe.err();
  const auto injected = Of(Request::kInjectFault);
  ASSERT_EQ(injected.size(), 2U);
  EXPECT_EQ(injected[0].inject_fault().kind(), Fault::KILL_WORKER);
  EXPECT_EQ(injected[1].inject_fault().member(), "gateway-0");
  EXPECT_EQ(Of(Request::kListEvents)[1].list_events().after(), 7U);
  EXPECT_THAT(troupe.out(),
              testing::AllOf(HasSubstr("1 s  kill-worker at node-0/1\n"), HasSubstr("worker-down"),
                             HasSubstr("2 s  stop-daemon at gateway-0 for 500 ms\n"),
                             HasSubstr("noticed after"), HasSubstr("the cluster is well\n")));
}

TEST_F(ChaosRunTest, AsJson) {
  auto& cluster = troupe.cluster;
  cluster.Answer(Request::kClusterStatus, Status(true));
  for (int look = 0; look < 12; ++look) cluster.Answer(Request::kListEvents, proto::AdminReply());
  cluster.Answer(Request::kListEvents, Event(1, "node-0", "worker-down"));
  cluster.Answer(Request::kListEvents, Event(2, "gateway-0", "member-suspect"));
  cluster.Answer(Request::kListEvents, proto::AdminReply());
  EXPECT_EQ(troupe.Run("chaos run " + path() + " --yes --json"), ExitCode::kOk) << troupe.err();
  EXPECT_THAT(troupe.out(),
              testing::AllOf(HasSubstr("\"fault\":\"kill-worker\""), HasSubstr("\"noticed_ms\":"),
                             HasSubstr("\"well\":true"), testing::Not(HasSubstr("worker-down"))));
}

TEST_F(ChaosRunTest, AClusterThatAllowsNoneIsLeftAlone) {
  troupe.cluster.Answer(Request::kClusterStatus, Status(true));
  troupe.cluster.Answer(Request::kInjectFault, absl::FailedPreconditionError("start it with --allow-faults"));
  EXPECT_EQ(troupe.Run("chaos run " + path() + " --yes"), ExitCode::kRefused);
  EXPECT_THAT(troupe.err(), HasSubstr("--allow-faults"));
  EXPECT_EQ(Of(Request::kInjectFault).size(), 1U);
}

TEST_F(ChaosRunTest, AFaultThatCannotBeDoneIsToldAndTheNextOneComes) {
  troupe.cluster.Answer(Request::kClusterStatus, Status(true));
  troupe.cluster.Answer(Request::kInjectFault, absl::NotFoundError("there is no member 'node-0'"));
  troupe.cluster.Answer(Request::kInjectFault, proto::AdminReply());
  EXPECT_EQ(troupe.Run("chaos run " + path() + " --yes"), ExitCode::kOk) << troupe.err();
  EXPECT_EQ(Of(Request::kInjectFault).size(), 2U);
  EXPECT_THAT(troupe.out(),
              testing::AllOf(HasSubstr("not done: there is no member 'node-0'"), HasSubstr("not done")));
}

TEST_F(ChaosRunTest, AClusterThatDoesNotRecoverIsAFailure) {
  troupe.cluster.Answer(Request::kClusterStatus, Status(true));
  troupe.cluster.Answer(Request::kClusterStatus, Status(false));
  EXPECT_EQ(troupe.Run("chaos run " + path() + " --yes"), ExitCode::kRefused);
  EXPECT_THAT(troupe.err(), HasSubstr("node-0 is not alive"));
  // The sleeps are one second, two seconds, half a second for the fault, and half a minute.
  EXPECT_EQ(troupe.console.now.time_since_epoch(), milliseconds(32500));
}

TEST_F(ChaosRunTest, AManagerThatIsAwayForAWhileIsNoEnd) {
  auto& cluster = troupe.cluster;
  cluster.Answer(Request::kListEvents, Event(70, "manager", "function-deployed"));
  for (int look = 0; look < 11; ++look) cluster.Answer(Request::kListEvents, proto::AdminReply());
  for (int look = 0; look < 3; ++look) cluster.Answer(Request::kListEvents, absl::UnavailableError("away"));
  cluster.Answer(Request::kListEvents,
                 Event(1, "node-0", "member-joined"));  // a new manager numbers its events anew
  cluster.Answer(Request::kListEvents, proto::AdminReply());
  cluster.Answer(Request::kClusterStatus, Status(true));
  EXPECT_EQ(troupe.Run("chaos run " + path() + " --yes"), ExitCode::kOk) << troupe.err();
  EXPECT_THAT(troupe.out(),
              testing::AllOf(HasSubstr("the manager does not answer"), HasSubstr("member-joined")));
  const auto asked = Of(Request::kListEvents);
  EXPECT_EQ(asked[1].list_events().after(), 70U);
  EXPECT_TRUE(std::any_of(asked.begin() + 1, asked.end(),
                          [](const Request& request) { return request.list_events().after() == 0; }));
}

TEST_F(ChaosRunTest, NothingIsDoneWithoutAYes) {
  troupe.console.input = {"n"};
  EXPECT_EQ(troupe.Run("chaos run " + path()), ExitCode::kRefused);
  EXPECT_TRUE(troupe.cluster.asked.empty());
  EXPECT_THAT(troupe.err(), HasSubstr("Inject 2 faults"));
  std::ofstream(path()) << "faults: nothing";
  EXPECT_EQ(troupe.Run("chaos run " + path() + " --yes"), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(), HasSubstr("plan.yaml: line 1: a plan has a list"));
  EXPECT_EQ(troupe.Run("chaos run /nowhere/plan.yaml --yes"), ExitCode::kUsage);
  EXPECT_TRUE(troupe.cluster.asked.empty());
}

TEST_F(ChaosRunTest, IsInterrupted) {
  troupe.cluster.Answer(Request::kClusterStatus, Status(true));
  troupe.console.wakes = {Console::Wake::kTimeout, Console::Wake::kInterrupt};
  EXPECT_EQ(troupe.Run("chaos run " + path() + " --yes"), ExitCode::kInterrupted);
  EXPECT_TRUE(Of(Request::kInjectFault).empty());
}

}  // namespace
}  // namespace troupe::shell

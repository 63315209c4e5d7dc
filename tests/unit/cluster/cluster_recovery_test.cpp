// What a cluster does when something is lost: a node, a gateway with its runs, the manager's own process, or
// a change that the store did not acknowledge. Each test is a table of events and what the cluster does about
// them.
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster::recovery_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

constexpr Runner kFirst{5, 1};   // an actor of gateway "g1"
constexpr Runner kSecond{6, 2};  // an actor of gateway "g2"

// --- a lost node ---

class LostNode : public ClusterTest {
 protected:
  // Function "f" has a copy on one of the nodes "n1" and "n2".
  LostNode() {
    EXPECT_THAT(Begin(), ElementsAre("store cluster"));
    EXPECT_THAT(Stored(), IsEmpty());
    EXPECT_THAT(JoinNode("n1"), ElementsAre("connect n1", "store cluster epoch"));
    EXPECT_THAT(Stored(), ElementsAre("n1: member-joined", "tell members", "joined 1 epoch 1"));
    EXPECT_THAT(Deploy("f", 2), ElementsAre("store f/1 revision"));
    EXPECT_THAT(Stored(), ElementsAre("tell members", "adopt f at n1", "manager: function-deployed"));
    EXPECT_THAT(Adopted(), ElementsAre("n1: model-adopted", "answer 2 OK"));
    JoinNode("n2");
    EXPECT_THAT(Stored(), ElementsAre("n2: member-joined", "tell members", "joined 1 epoch 2"));
    EXPECT_THAT(Pulse(), ElementsAre("tell members"));
  }
};

TEST_F(LostNode, AModelWhoseOnlyNodeIsLostIsAdoptedByAnother) {
  EXPECT_THAT(On(MemberLost{"n1"}),
              ElementsAre("disconnect n1", "n1: member-dead", "tell members", "adopt f at n2"));
  EXPECT_THAT(Adopted(), ElementsAre("n2: model-adopted"));
}

TEST_F(LostNode, ANodeThatFallsSilentIsSuspectedBeforeItIsDead) {
  Lines lines;
  for (int i = 0; i < 20; ++i) {
    Hears("n2", 2);
    for (auto& line : Pulse()) lines.push_back(std::move(line));
  }
  EXPECT_THAT(lines, ElementsAre("n1: member-suspect", "disconnect n1", "n1: member-dead", "tell members",
                                 "adopt f at n2"));
}

TEST_F(LostNode, AManagerThatStoodStillDoesNotTakeItsMembersForDead) {
  EXPECT_THAT(Pulse(seconds(10)), ElementsAre("manager: manager-stood-still"));
}

TEST_F(LostNode, WhatALifeThatIsOverAnswersIsNotBelieved) {
  On(MemberLost{"n1"});  // n2 is asked to adopt the model
  On(MemberLost{"n2"});
  JoinNode("n2", 3);
  Stored();
  EXPECT_THAT(On(AdoptionAnswered{FunctionOf("f").model_digest(), "n2", 2, "f", absl::OkStatus()}), IsEmpty())
      << "epoch 2 of the node is over";
  EXPECT_THAT(Adopted(), ElementsAre("n2: model-adopted")) << "the node's new life was asked again";
}

TEST_F(LostNode, ANodeThatJoinsAgainBeforeItsDeathIsNoticedIsNotDisconnected) {
  EXPECT_THAT(JoinNode("n1", 3), ElementsAre("connect n1", "store cluster epoch"));
  const auto lines = Stored();
  EXPECT_THAT(lines, Contains("joined 3 epoch 3"));
  EXPECT_THAT(Pulse(), Not(Contains("disconnect n1")));
}

AdminAsked DrainOf(const std::string& node, bool drain) {
  AdminAsked asked{.ask = 5};
  asked.request.mutable_drain()->set_name(node);
  asked.request.mutable_drain()->set_drain(drain);
  return asked;
}

TEST_F(LostNode, ADrainedNodeIsDrainedAgainWhenItIsBack) {
  EXPECT_THAT(On(DrainOf("n1", true)),
              ElementsAre("n1: member-draining", "tell members", "adopt f at n2", "store drained/n1"));
  EXPECT_THAT(Stored(), ElementsAre("drain n1")) << "the drain is durable before the node is asked";
  EXPECT_THAT(On(DrainAnswered{5, absl::OkStatus()}), ElementsAre("answer 5 OK"));
  On(MemberLost{"n1"});
  JoinNode("n1", 6);
  EXPECT_THAT(Stored(), Contains("drain n1"));
}

TEST_F(LostNode, ADrainOfANodeThatIsGoneCountsWhenItIsBack) {
  On(MemberLost{"n1"});
  EXPECT_THAT(On(DrainOf("n1", true)), ElementsAre("store drained/n1"));
  EXPECT_THAT(Stored(), ElementsAre("answer 5 OK"));
  JoinNode("n1", 6);
  EXPECT_THAT(Stored(), Contains("drain n1"));
}

TEST_F(LostNode, ADrainIsUndoneWhileItsNodeIsGone) {
  On(DrainOf("n1", true));
  Stored();
  On(MemberLost{"n1"});
  EXPECT_THAT(On(DrainOf("n1", false)), ElementsAre("store -drained/n1"));
  EXPECT_THAT(Stored(), ElementsAre("answer 5 OK"));
  JoinNode("n1", 6);
  EXPECT_THAT(Stored(), Not(Contains("drain n1")));
}

TEST_F(LostNode, ANodeThatWasNeverHeardOfIsNotDrained) {
  EXPECT_THAT(On(DrainOf("n9", true)), ElementsAre("answer 5 NOT_FOUND"));
  EXPECT_THAT(On(DrainOf("n9", false)), ElementsAre("answer 5 NOT_FOUND"));
}

TEST_F(ClusterTest, ADrainIsUndoneBeforeItsNodeIsBackAfterTheManagersStart) {
  auto records = Records();
  records.drained = {"n1"};
  Begin(records);
  Stored();
  EXPECT_THAT(On(DrainOf("n1", false)), ElementsAre("store -drained/n1"));
  EXPECT_THAT(Stored(), ElementsAre("answer 5 OK"));
  JoinNode("n1", 6);
  EXPECT_THAT(Stored(), Not(Contains("drain n1")));
}

TEST_F(LostNode, AJoinThatIsNotStoredIsAnsweredWithWhy) {
  JoinNode("n3", 7);
  EXPECT_THAT(Stored(absl::UnavailableError("the disk is full")), ElementsAre("joined 7 UNAVAILABLE"));
}

// --- a lost gateway, and its runs ---

class LostGateway : public ClusterTest {
 protected:
  // Run "r" is under way at gateway "g1", which has process 1; gateway "g2" has process 2.
  LostGateway() {
    Begin(Records());
    Stored();
    JoinGateway("g1", 1);
    Stored();
    JoinGateway("g2", 2);
    Stored();
    EXPECT_THAT(Start("r", 3, kFirst, "g1"), ElementsAre("watch 5", "store r"));
    EXPECT_THAT(Stored(), ElementsAre("run 3 OK"));
  }
};

TEST_F(LostGateway, ItsRunGoesOnAtAnotherOnceTheClaimIsDurable) {
  EXPECT_THAT(On(RunnerLost{kFirst}), IsEmpty());
  EXPECT_THAT(On(MemberLost{"g1", true}), ElementsAre("disconnect g1", "g1: member-dead", "tell members"));
  EXPECT_THAT(Pulse(), ElementsAre("store r"));
  EXPECT_THAT(Pulse(), IsEmpty()) << "the run is not planned twice";
  EXPECT_THAT(Stored(), ElementsAre("g2: run-taken-over", "go on with r at g2"));
  EXPECT_THAT(Start("r", 4, kSecond, "g2", true), ElementsAre("watch 6", "run 4 OK"));
}

TEST_F(LostGateway, AnActorThatLivesThoughItsGatewayWasTakenForDeadHearsOfTheClaim) {
  On(MemberLost{"g1", true});
  Pulse();
  EXPECT_THAT(Stored(), ElementsAre("tell 5 of claim 1", "g2: run-taken-over", "go on with r at g2"));
  StepAsked late{.ask = 4, .command = StepOf("r", "one")};
  EXPECT_THAT(On(late), ElementsAre("manager: run-claim-refused", "run 4 ABORTED"));
}

TEST_F(LostGateway, AClaimThatIsNotStoredIsTriedAgain) {
  On(RunnerLost{kFirst});
  On(MemberLost{"g1", true});
  EXPECT_THAT(Pulse(), ElementsAre("store r"));
  EXPECT_THAT(Stored(absl::UnavailableError("the disk is full")), IsEmpty());
  Lines lines;
  for (int i = 0; i < 100 && lines.empty(); ++i) {
    Hears("g2", 2);
    lines = Pulse();
  }
  EXPECT_THAT(lines, ElementsAre("store r")) << "the claim is stored after the grace";
}

TEST_F(LostGateway, AStepOnItsWayIsRefusedFromTheMomentTheClaimIs) {
  On(MemberLost{"g1", true});
  Pulse();
  EXPECT_THAT(On(StepAsked{.ask = 4, .command = StepOf("r", "one")}),
              ElementsAre("manager: run-claim-refused", "run 4 ABORTED"))
      << "it is not known yet whether the claim will be stored";
}

TEST_F(LostGateway, AnActorOfAGatewayThatIsBackInTimeKeepsItsRun) {
  On(MemberLost{"g1", true});
  JoinGateway("g1", 1, 8);
  Stored();
  EXPECT_THAT(Pulse(), Not(Contains("store r")));
  EXPECT_THAT(On(StepAsked{.ask = 9, .command = StepOf("r", "one")}), ElementsAre("store r/one"));
}

TEST_F(LostGateway, WhatWaitsForALostRunsEndIsAnsweredByTheNextOwner) {
  EXPECT_THAT(Start("r", 4, kSecond, "g2"), ElementsAre("watch 6"))
      << "the new owner waits for the end of the run";
  On(RunnerLost{kFirst});
  FinishAsked end{.ask = 5, .command = FinishOf("r", proto::RUN_SUCCEEDED)};
  EXPECT_THAT(On(end), ElementsAre("store r"));
  EXPECT_THAT(Stored(), ElementsAre("run 5 OK", "run 4 OK"));
}

TEST_F(LostGateway, AWaiterThatIsGoneIsDropped) {
  Start("r", 4, kSecond, "g2");
  EXPECT_THAT(On(RunnerLost{kSecond}), ElementsAre("drop 4"));
}

// --- what the store did not acknowledge ---

TEST_F(LostGateway, AStartThatIsNotStoredIsTakenBackUntilThatIsDurable) {
  EXPECT_THAT(Start("s", 4, kFirst, "g1"), ElementsAre("watch 5", "store s"));
  EXPECT_THAT(Stored(absl::UnavailableError("the disk is full")), ElementsAre("run 4 UNAVAILABLE"));
  EXPECT_THAT(On(TimerFired{Timer::kTakeBack}), ElementsAre("store -s"));
  EXPECT_THAT(Stored(absl::UnavailableError("the disk is full")), IsEmpty());
  EXPECT_THAT(On(TimerFired{Timer::kTakeBack}), ElementsAre("store -s")) << "the removal is tried again";
  Stored();
  EXPECT_THAT(On(TimerFired{Timer::kTakeBack}), IsEmpty());
}

TEST_F(LostGateway, AKeyThatIsSubmittedAnewIsNotTakenBack) {
  Start("s", 4, kFirst, "g1");
  Stored(absl::UnavailableError("the disk is full"));
  EXPECT_THAT(Start("s", 5, kFirst, "g1"), ElementsAre("watch 5", "store s"));
  EXPECT_THAT(On(TimerFired{Timer::kTakeBack}), IsEmpty());
  EXPECT_THAT(Stored(), ElementsAre("run 5 OK"));
}

TEST_F(LostGateway, AStepThatIsAskedTwiceIsStoredOnce) {
  EXPECT_THAT(On(StepAsked{.ask = 4, .command = StepOf("r", "one")}), ElementsAre("store r/one"));
  EXPECT_THAT(On(StepAsked{.ask = 5, .command = StepOf("r", "one")}), IsEmpty());
  EXPECT_THAT(Stored(), ElementsAre("run 4 OK", "run 5 OK"));
  EXPECT_THAT(On(StepAsked{.ask = 6, .command = StepOf("r", "one")}), ElementsAre("run 6 OK"));
}

// --- the manager's own process ---

class Restart : public ClusterTest {
 protected:
  Restart() {
    EXPECT_THAT(Begin(Records("r")), ElementsAre("store cluster"));
    Stored();
  }
};

TEST_F(Restart, ARunIsLeftToItsGatewayForTheGrace) {
  JoinGateway("g1", 1);
  Stored();
  JoinGateway("g2", 2);
  Stored();
  EXPECT_THAT(Pulse(), ElementsAre("tell members"));
  EXPECT_THAT(Start("r", 4, kFirst, "g1", true), ElementsAre("watch 5", "store r"))
      << "the run goes on under a new claim";
  EXPECT_THAT(Stored(), ElementsAre("run 4 OK"));
}

TEST_F(Restart, ARunWhoseGatewayDoesNotComeBackGoesOnElsewhere) {
  JoinGateway("g2", 2);
  Stored();
  EXPECT_THAT(Pulse(), ElementsAre("tell members"));
  Lines lines;
  for (int i = 0; i < 100 && lines.empty(); ++i) {
    Hears("g2", 1);
    lines = Pulse();
  }
  EXPECT_THAT(lines, ElementsAre("store r"));
  EXPECT_THAT(Stored(), ElementsAre("g2: run-taken-over", "go on with r at g2"));
}

TEST_F(Restart, AMemberOfItsFormerLifeHasToJoinAgain) {
  EXPECT_THAT(Hears("n1", 1), ElementsAre("unknown"));
}

TEST_F(Restart, AFunctionWhoseObjectsTheStoreLacksIsTold) {
  auto records = Records();
  auto function = FunctionOf("f");
  function.mutable_key()->set_version("1");
  records.functions.push_back(function);
  Begin(std::move(records));
  EXPECT_THAT(On(Started{{{function.key(), {"weights"}}}}), Contains("manager: function-broken"));
}

// --- the audit ---

class Audited : public ClusterTest {
 protected:
  static ClusterSettings WithAudit() {
    auto settings = Settings();
    settings.audited = true;
    return settings;
  }
  Audited() : ClusterTest(WithAudit()) {
    Begin(Records());
    Stored();
  }
  static AdminAsked RemoveFlow(Ask ask) {
    AdminAsked asked{.ask = ask, .asker = {.who = "key/ops"}};
    asked.request.mutable_remove_workflow()->set_name("flow");
    return asked;
  }
};

TEST_F(Audited, AChangeIsMadeBehindItsFirstEntryAndAnsweredBehindItsSecond) {
  EXPECT_THAT(On(RemoveFlow(1)), ElementsAre("audit workflow.remove key/ops begun"));
  EXPECT_EQ(change_, 1u);
  EXPECT_THAT(Written(), ElementsAre("store -flow/1 revision"));
  EXPECT_THAT(Stored(),
              ElementsAre("tell members", "manager: workflow-removed", "audit workflow.remove key/ops OK"));
  EXPECT_EQ(change_, 1u);
  EXPECT_THAT(Written(), ElementsAre("answer 1 OK"));
}

TEST_F(Audited, AChangeThatCannotBeWrittenDownIsNotMade) {
  On(RemoveFlow(1));
  EXPECT_THAT(Written(absl::UnavailableError("the disk is full")),
              ElementsAre("manager: audit-behind", "audit workflow.remove key/ops UNAVAILABLE"));
  EXPECT_THAT(Written(), ElementsAre("answer 1 UNAVAILABLE"));
}

TEST_F(Audited, AnEntryThatIsLateDoesNotHoldTheAnswerBack) {
  On(RemoveFlow(1));
  Written();
  Stored();
  EXPECT_THAT(Written(absl::UnavailableError("the disk is full")),
              ElementsAre("manager: audit-behind", "answer 1 OK"));
}

TEST_F(Audited, WithoutRoomInTheAuditNothingIsChanged) {
  auto asked = RemoveFlow(1);
  asked.room = absl::ResourceExhaustedError("the disk is full");
  EXPECT_THAT(On(asked), ElementsAre("answer 1 RESOURCE_EXHAUSTED"));
}

TEST_F(Audited, AChangeThatIsNotAllowedHasAnEntryToo) {
  auto asked = RemoveFlow(1);
  asked.allowed = absl::PermissionDeniedError("not you");
  EXPECT_THAT(On(asked), ElementsAre("audit workflow.remove key/ops PERMISSION_DENIED"));
  EXPECT_EQ(change_, 0u) << "it does not end a change that an earlier manager began under the same number";
  EXPECT_THAT(Written(), ElementsAre("answer 1 PERMISSION_DENIED"));
}

TEST_F(Audited, AMemberThatIsRefusedIsToldOnce) {
  JoinAsked asked{.ask = 1};
  asked.join.mutable_member()->set_name("n1");
  asked.allowed = absl::PermissionDeniedError("not you");
  EXPECT_THAT(On(asked), ElementsAre("audit member.join member/n1 PERMISSION_DENIED",
                                     "manager: member-refused", "joined 1 PERMISSION_DENIED"));
  EXPECT_THAT(On(asked), ElementsAre("joined 1 PERMISSION_DENIED"));
}

}  // namespace
}  // namespace troupe::cluster::recovery_test

// Changes of one run's record: its end, a cancellation and claims do not overwrite each other in the store.
#include "tests/unit/cluster/cluster_fixture.hpp"

namespace troupe::cluster::run_changes_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr Runner kRunner{5, 1};  // an actor of gateway "g1"

class RunChanges : public ClusterTest {
 protected:
  // Run "r" is under way at gateway "g1".
  RunChanges() {
    Begin(Records());
    Stored();
    JoinGateway("g1", 1);
    Stored();
    JoinGateway("g2", 2);
    Stored();
    Start("r", 3, kRunner, "g1");
    EXPECT_THAT(Stored(), ElementsAre("run 3 OK"));
  }
  Lines Cancel(Ask ask, const std::string& run = "r") {
    AdminAsked asked{.ask = ask};
    asked.request.mutable_cancel_run()->set_run(run);
    return On(std::move(asked));
  }
  Lines Finish(Ask ask) {
    return On(FinishAsked{.ask = ask, .command = FinishOf("r", proto::RUN_SUCCEEDED)});
  }
};

TEST_F(RunChanges, ACancellationBehindTheEndComesTooLate) {
  EXPECT_THAT(Finish(4), ElementsAre("store r"));
  EXPECT_THAT(Cancel(5), IsEmpty()) << "the cancellation waits";
  EXPECT_THAT(Stored(), ElementsAre("run 4 OK", "answer 5 FAILED_PRECONDITION"));
}

TEST_F(RunChanges, AnEndBehindACancellationLeavesItCancelled) {
  EXPECT_THAT(Cancel(4), ElementsAre("store r"));
  EXPECT_THAT(Finish(5), IsEmpty()) << "the end waits";
  EXPECT_THAT(Stored(), ElementsAre("cancel 5", "answer 4 OK", "run 5 OK"))
      << "the cancellation is durable before the run is cancelled";
  EXPECT_THAT(Cancel(6), ElementsAre("answer 6 OK")) << "the run is cancelled already";
}

TEST_F(RunChanges, AnEndThatIsNotStoredMayComeAgain) {
  EXPECT_THAT(Finish(4), ElementsAre("store r"));
  EXPECT_THAT(Finish(5), IsEmpty());
  EXPECT_THAT(Stored(absl::UnavailableError("the disk is full")),
              ElementsAre("run 4 UNAVAILABLE", "store r"));
  EXPECT_THAT(Stored(), ElementsAre("run 5 OK"));
}

TEST_F(RunChanges, AClaimBehindTheEndIsNotStored) {
  EXPECT_THAT(Finish(4), ElementsAre("store r"));
  On(MemberLost{"g1", true});
  EXPECT_THAT(Pulse(), IsEmpty()) << "the claim waits";
  EXPECT_THAT(Stored(), ElementsAre("run 4 OK"));
  EXPECT_THAT(Pulse(), IsEmpty()) << "no gateway goes on with a run that has ended";
}

TEST_F(RunChanges, AnEndBehindAClaimIsOfTheFormerOwner) {
  On(MemberLost{"g1", true});
  EXPECT_THAT(Pulse(), ElementsAre("store r"));
  EXPECT_THAT(Finish(4), IsEmpty());
  EXPECT_THAT(Stored(), ElementsAre("tell 5 of claim 1", "g2: run-taken-over", "go on with r at g2",
                                    "manager: run-claim-refused", "run 4 ABORTED"));
}

TEST_F(RunChanges, MoreThanSixteenAtATimeAreRefused) {
  EXPECT_THAT(Cancel(100), ElementsAre("store r"));
  for (Ask ask = 101; ask < 116; ++ask) ASSERT_THAT(Cancel(ask), IsEmpty());
  EXPECT_THAT(Cancel(116), ElementsAre("answer 116 RESOURCE_EXHAUSTED"));
  EXPECT_THAT(Finish(117), ElementsAre("run 117 RESOURCE_EXHAUSTED"));
  const auto lines = Stored();
  EXPECT_EQ(lines.size(), 1 + 16u) << "each change that waited is answered once";
  EXPECT_THAT(lines, Contains("answer 115 OK"));
}

TEST_F(RunChanges, ARunThatNeverBeganCannotBeCancelled) {
  EXPECT_THAT(Cancel(4, "s"), ElementsAre("answer 4 NOT_FOUND"));
}

TEST_F(RunChanges, AClaimThatIsNotWantedAnyMoreIsNotStored) {
  EXPECT_THAT(Cancel(4), ElementsAre("store r"));
  On(RunnerLost{kRunner});
  On(MemberLost{"g1", true});
  EXPECT_THAT(Pulse(), IsEmpty()) << "the claim for g2 waits for the cancellation";
  JoinGateway("g1", 1, 5);
  EXPECT_THAT(Start("r", 6, {7, 1}, "g1"), ElementsAre("watch 7")) << "the claim of the new actor waits, too";
  EXPECT_THAT(Stored(absl::UnavailableError("the disk is full")),
              ElementsAre("answer 4 UNAVAILABLE", "store r"))
      << "only the claim of the new actor is stored";
  Stored();  // the epoch of g1
  EXPECT_THAT(Stored(), ElementsAre("run 6 OK"));
}

// The client asks again for a run that failed for a passing reason, and its gateway is killed meanwhile.
TEST_F(RunChanges, ARunThatIsReopenedForALostActorGoesOnElsewhere) {
  auto failed = FinishOf("r", proto::RUN_FAILED);
  failed.set_code(static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  On(FinishAsked{.ask = 4, .command = failed});
  EXPECT_THAT(Stored(), ElementsAre("run 4 OK"));
  const Runner again{7, 1};
  EXPECT_THAT(Start("r", 6, again, "g1"), Contains("store r")) << "its claim reopens the run";
  On(RunnerLost{again});
  On(MemberLost{"g1", true});
  Stored();
  EXPECT_THAT(Pulse(), ElementsAre("store r")) << "the claim for g2";
  EXPECT_THAT(Stored(), Contains("go on with r at g2"));
}

// A run whose workflow is removed cannot go on.
TEST_F(RunChanges, ARunWhoseWorkflowIsGoneFailsWhereItWouldGoOn) {
  AdminAsked asked{.ask = 4};
  asked.request.mutable_remove_workflow()->set_name("flow");
  On(std::move(asked));
  Stored();
  On(RunnerLost{kRunner});
  On(MemberLost{"g1", true});
  EXPECT_THAT(Pulse(), ElementsAre("store r")) << "the claim";
  EXPECT_THAT(Stored(), ElementsAre("store r")) << "the end, once the claim is stored";
  Stored();
  EXPECT_THAT(On(FinishAsked{.ask = 5, .command = FinishOf("r", proto::RUN_SUCCEEDED)}),
              ElementsAre("manager: run-claim-refused", "run 5 ABORTED"));
}

}  // namespace
}  // namespace troupe::cluster::run_changes_test

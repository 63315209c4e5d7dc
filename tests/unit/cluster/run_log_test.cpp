#include "cluster/runs/run_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/cluster/records.hpp"

namespace troupe::cluster {
namespace {

TEST(RunLog, ACommandAppliedTwiceChangesNothing) {
  RunLog log;
  for (int i = 0; i < 2; ++i) log.Apply(StartOf("r"));
  for (const char* bytes : {"first", "second"}) log.Apply(StepOf("r", "a", bytes));
  for (const auto state : {proto::RUN_SUCCEEDED, proto::RUN_FAILED}) log.Apply(FinishOf("r", state, 7));
  const auto* run = log.Find("r");
  ASSERT_NE(run, nullptr);
  ASSERT_EQ(run->steps_size(), 1);
  EXPECT_EQ(run->steps(0).outputs(0).inlined(), "first") << "an acknowledged step stays";
  EXPECT_EQ(run->state(), proto::RUN_SUCCEEDED);
  EXPECT_EQ(run->finished_unix_ns(), 7);
  EXPECT_EQ(log.size(), 1u);
  log.Apply(StartOf("r"));
  EXPECT_EQ(log.Find("r")->state(), proto::RUN_SUCCEEDED) << "an ended run does not begin again";
}

TEST(RunLog, AResultThatWasLostIsReplacedByOneThatWasComputedAnew) {
  RunLog log;
  log.Apply(StartOf("r"));
  log.Apply(StepOf("r", "a", "first"));
  auto again = StepOf("r", "a", "again");
  again.set_recomputed(1);
  for (int i = 0; i < 2; ++i) log.Apply(again);
  log.Apply(StepOf("r", "a", "late"));
  ASSERT_EQ(log.Find("r")->steps_size(), 1);
  EXPECT_EQ(log.FindStep("r", "a")->outputs(0).inlined(), "again");
  EXPECT_EQ(log.steps_recomputed(), 1u);
  EXPECT_EQ(log.FindStep("r", "b"), nullptr);
  EXPECT_EQ(log.FindStep("s", "a"), nullptr);
}

TEST(RunLog, AClaimReopensARunThatFailedForAPassingReasonAndNoOther) {
  using Code = absl::StatusCode;
  for (const auto& [code, passing] :
       std::vector<std::pair<int, bool>>{{static_cast<int>(Code::kUnavailable), true},
                                         {static_cast<int>(Code::kResourceExhausted), true},
                                         {static_cast<int>(Code::kAborted), true},
                                         {static_cast<int>(Code::kDeadlineExceeded), true},
                                         {static_cast<int>(Code::kInvalidArgument), false},
                                         {static_cast<int>(Code::kInternal), false},
                                         {0, false},  // as in a record of a release without codes
                                         {-7, false}}) {
    RunLog log({.runs = 1});
    log.Apply(StartOf("r"));
    log.Apply(StepOf("r", "a"));
    auto end = FinishOf("r", proto::RUN_FAILED, 7);
    end.set_code(code);
    log.Apply(end);
    EXPECT_EQ(MayReopen(*log.Find("r")), passing) << code;
    const auto claim = log.BeginClaim("r", "gateway-2");
    for (int i = 0; i < 2; ++i) log.Apply(claim);
    const auto* run = log.Find("r");
    EXPECT_EQ(run->claim(), 1u);
    EXPECT_EQ(run->steps_size(), 1) << "a committed step stays";
    EXPECT_EQ(run->state(), passing ? proto::RUN_RUNNING : proto::RUN_FAILED) << code;
    if (!passing) continue;
    EXPECT_EQ(run->code(), 0);
    EXPECT_EQ(run->message(), "");
    EXPECT_TRUE(absl::IsAborted(log.ValidateCommit("r", 0))) << "the former owner is refused";
    log.Apply(claim);
    end.set_claim(1);
    log.Apply(end);
    EXPECT_EQ(log.Find("r")->state(), proto::RUN_FAILED) << "the run may fail again";
    EXPECT_TRUE(log.TakeSurplus().empty()) << "the run counts once among those that have ended";
  }
}

TEST(RunLog, RunsThatHaveEndedAreKeptUpToTheirNumberAndTheirBytes) {
  const auto end = [](RunLog& log, const std::string& run, std::size_t bytes) {
    log.Apply(StartOf(run));
    auto finish = FinishOf(run, proto::RUN_SUCCEEDED, 7);
    finish.add_outputs()->set_inlined(std::string(bytes, 'x'));
    log.Apply(finish);
    log.Apply(finish);  // a second application counts once
  };
  const auto names = [](const std::vector<proto::RunRecord>& runs) {
    std::vector<std::string> out;
    for (const auto& run : runs) out.push_back(run.start().run());
    return out;
  };
  RunLog log({.runs = 3, .bytes = KiB(100)});
  end(log, "a", 30'000);
  end(log, "b", 30'000);
  EXPECT_THAT(log.TakeSurplus(), testing::IsEmpty());
  end(log, "c", 60'000);
  EXPECT_THAT(names(log.TakeSurplus()), testing::ElementsAre("a"));
  end(log, "d", 200'000);
  EXPECT_THAT(names(log.TakeSurplus()), testing::ElementsAre("b", "c"))
      << "the newest is kept whatever its size";
  for (const char* run : {"e", "f", "g"}) end(log, run, 1);
  EXPECT_THAT(names(log.TakeSurplus()), testing::ElementsAre("d"));
  EXPECT_EQ(log.size(), 3u);
}

TEST(RunLog, TensorsOnTheDiskCountToo) {
  RunLog log({.blobs = KiB(100)});
  for (const std::string run : {"a", "b", "c"}) {
    log.Apply(StartOf(run));
    auto finish = FinishOf(run, proto::RUN_SUCCEEDED, 7);
    for (int twice = 0; twice < 2; ++twice) {  // one tensor under two names
      finish.add_outputs()->set_blob("blob-" + run);
      finish.mutable_outputs(twice)->set_blob_bytes(40'000);
    }
    log.Apply(finish);
    EXPECT_EQ(log.TakeSurplus().size(), run == "c" ? 1u : 0u);
  }
  EXPECT_EQ(log.Find("a"), nullptr);
  log.Apply(StartOf("huge"));
  auto finish = FinishOf("huge", proto::RUN_SUCCEEDED, 7);
  finish.add_outputs()->set_blob("blob");
  finish.mutable_outputs(0)->set_blob_bytes(10'000'000);
  log.Apply(finish);
  EXPECT_EQ(log.TakeSurplus().size(), 2u) << "the newest is kept whatever its size";
}

TEST(RunLog, AKeyTakesNoOtherVersionThanThatOfItsRun) {
  RunLog log;
  auto start = StartOf("mine");
  start.set_version("1");
  EXPECT_TRUE(log.ValidateStart(start).ok());
  log.Apply(start);
  start.set_version("2");
  EXPECT_TRUE(log.ValidateStart(start).ok())
      << "the newest version was asked for, and the run goes on with its own";
  start.set_version_named(true);
  EXPECT_TRUE(absl::IsAlreadyExists(log.ValidateStart(start))) << log.ValidateStart(start);
}

TEST(RunLog, ACancelledRunRefusesCommits) {
  RunLog log;
  EXPECT_TRUE(absl::IsNotFound(log.ValidateCommit("r", 0)));
  log.Apply(StartOf("r"));
  EXPECT_TRUE(log.ValidateCommit("r", 0).ok());
  log.Apply(FinishOf("r", proto::RUN_CANCELLED));
  EXPECT_TRUE(absl::IsFailedPrecondition(log.ValidateCommit("r", 0)));
}

TEST(RunLog, WhatAnEarlierClaimComputedIsRefusedFromTheMomentTheNextIsOnItsWay) {
  RunLog log;
  auto start = StartOf("r");
  start.set_gateway("a");
  log.Apply(start);
  EXPECT_EQ(log.Find("r")->gateway(), "a");
  auto claim = log.BeginClaim("r", "b");
  EXPECT_EQ(claim.claim(), 1u);
  EXPECT_TRUE(absl::IsAborted(log.ValidateCommit("r", 0)))
      << "it is not known yet whether the claim will be stored";
  log.ClaimFailed("r");
  EXPECT_TRUE(log.ValidateCommit("r", 0).ok()) << "the claim was not stored";
  claim = log.BeginClaim("r", "b");
  for (int i = 0; i < 2; ++i) log.Apply(claim);
  EXPECT_EQ(log.Find("r")->gateway(), "b");
  EXPECT_EQ(log.Find("r")->claim(), 1u) << "a second application changes nothing";
  const auto refused = log.ValidateCommit("r", 0);
  EXPECT_TRUE(absl::IsAborted(refused));
  EXPECT_NE(refused.message().find("gateway 'b'"), std::string::npos) << refused;
  EXPECT_TRUE(log.ValidateCommit("r", 1).ok());
  auto older = claim;
  older.set_gateway("c");
  log.Apply(older);
  EXPECT_EQ(log.Find("r")->gateway(), "b") << "an old command changes nothing";
  EXPECT_EQ(log.Unfinished(), (std::map<std::string, std::vector<std::string>>{{"b", {"r"}}}));
  log.Apply(FinishOf("r", proto::RUN_SUCCEEDED));
  EXPECT_TRUE(log.Unfinished().empty());
}

TEST(RunLog, AKeyIsForOneWorkflowAndOneSetOfInputs) {
  RunLog log;
  auto start = StartOf("r");
  start.add_inputs()->set_inlined("one");
  log.Apply(start);
  EXPECT_TRUE(log.ValidateStart(start).ok());
  start.mutable_inputs(0)->set_inlined("two");
  const auto other = log.ValidateStart(start);
  EXPECT_TRUE(absl::IsAlreadyExists(other));
  EXPECT_NE(other.message().find("other inputs"), std::string::npos) << other;
}

TEST(RunLog, AKeyIsTakenFromTheMomentItsStartIsOnItsWay) {
  RunLog log;
  auto start = StartOf("r");
  start.add_inputs()->set_inlined("one");
  auto other = start;
  other.mutable_inputs(0)->set_inlined("two");
  log.BeginStart(start);
  EXPECT_EQ(log.Find("r"), nullptr);
  EXPECT_TRUE(log.ValidateStart(start).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(log.ValidateStart(other)));
  log.StartFailed("r");
  EXPECT_TRUE(log.ValidateStart(other).ok());
  log.BeginStart(start);
  log.Apply(start);
  EXPECT_TRUE(absl::IsAlreadyExists(log.ValidateStart(other)));
}

TEST(RunLog, AKeyIsCheckedBeforeItNamesARun) {
  RunLog log;
  for (const std::string& bad :
       {std::string(), std::string("a/b"), std::string("a b"), std::string(129, 'r')})
    EXPECT_TRUE(absl::IsInvalidArgument(log.ValidateStart(StartOf(bad)))) << bad;
  EXPECT_TRUE(log.ValidateStart(StartOf("gateway-1-7f.2_x")).ok());
  log.Apply(StartOf("r"));
  EXPECT_TRUE(log.ValidateStart(StartOf("r")).ok()) << "the same submission may come again";
  EXPECT_TRUE(absl::IsAlreadyExists(log.ValidateStart(StartOf("r", "other"))));
}

TEST(RunLog, CommandsOfUnknownRunsAreDropped) {
  RunLog log;
  log.Apply(StepOf("r", "a"));
  log.Apply(FinishOf("r", proto::RUN_SUCCEEDED));
  EXPECT_EQ(log.Find("r"), nullptr);
  EXPECT_TRUE(log.TakeSurplus().empty());
}

TEST(RunLog, ARunWhoseClaimIsOnItsWayIsNotSurplus) {
  RunLog log({.runs = 1});
  for (const char* run : {"a", "b"}) log.Apply(StartOf(run));
  auto failed = FinishOf("a", proto::RUN_FAILED);
  failed.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  log.Apply(failed);
  const auto claim = log.BeginClaim("a", "gateway-2");
  log.Apply(FinishOf("b", proto::RUN_SUCCEEDED));
  const auto surplus = log.TakeSurplus();
  ASSERT_EQ(surplus.size(), 1u);
  EXPECT_EQ(surplus[0].start().run(), "b") << "the older one is about to go on";
  log.Apply(claim);
  EXPECT_EQ(log.Find("a")->state(), proto::RUN_RUNNING);
  log.Apply(FinishOf("a", proto::RUN_SUCCEEDED));
  EXPECT_TRUE(log.TakeSurplus().empty());
}

TEST(RunLog, TheOldestEndedRunsAreSurplusAndRunningOnesNever) {
  RunLog log({.runs = 2});
  for (const char* run : {"a", "b", "c", "d", "e"}) log.Apply(StartOf(run));
  for (const char* run : {"c", "a", "d"}) log.Apply(FinishOf(run, proto::RUN_SUCCEEDED));
  const auto surplus = log.TakeSurplus();
  ASSERT_EQ(surplus.size(), 1u);
  EXPECT_EQ(surplus[0].start().run(), "c");
  EXPECT_TRUE(log.TakeSurplus().empty());
  EXPECT_EQ(log.List("").size(), 4u);
  EXPECT_EQ(log.List("flow").size(), 4u);
  EXPECT_TRUE(log.List("other").empty());
}

}  // namespace
}  // namespace troupe::cluster

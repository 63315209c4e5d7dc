// The checkers of requests, states, counts, the store and runs, each on histories that break its rules and on
// ones that keep them.
#include "sim/checkers/request_ledger.hpp"

#include <gtest/gtest.h>

#include "proto/workflow.pb.h"
#include "sim/checkers/count_check.hpp"
#include "sim/checkers/run_check.hpp"
#include "sim/checkers/state_check.hpp"
#include "sim/checkers/store_watch.hpp"
#include "storage/fake_metadata_store.hpp"

namespace troupe::sim {
namespace {

using std::chrono::milliseconds;
using Code = absl::StatusCode;
using Kind = RegistryOp::Kind;
using Result = RegistryOp::Result;
using storage::Table;

Time Moment(int ms) {
  return Time{} + milliseconds(ms);
}

class Requests : public ::testing::Test {
 protected:
  std::uint64_t Ask(int at, const std::string& version = "") {
    return ledger_.Asked({.gateway = "gateway-1",
                          .function = "f",
                          .version = version,
                          .question = "q",
                          .asked = Moment(at),
                          .timeout = milliseconds(100)});
  }
  void Registry(Kind kind, const std::string& key, int from, int to) {
    registry_.push_back(
        {.kind = kind, .key = key, .result = Result::kDone, .invoked = Moment(from), .returned = Moment(to)});
  }
  std::string Check() {
    std::string all;
    for (const auto& line : CheckRequests(ledger_, registry_, rules_)) all += line + "\n";
    return all;
  }
  RequestLedger ledger_;
  std::vector<RegistryOp> registry_;
  RequestRules rules_{.propagation = milliseconds(10)};
};

TEST_F(Requests, OneRightAnswerInTimeIsGood) {
  Registry(Kind::kDeploy, "f/1", -30, -20);
  ledger_.Answered(Ask(0), Moment(50), {Code::kOk, "q"});
  ledger_.Answered(Ask(0), Moment(100), {Code::kDeadlineExceeded, "late"});
  EXPECT_EQ(Check(), "");
  EXPECT_EQ(ledger_.open(), 0u);
}

TEST_F(Requests, NoneTwoLateWrongAndInternalAreNot) {
  Ask(0);
  EXPECT_NE(Check().find("it has no answer"), std::string::npos);
  ledger_.Answered(1, Moment(5), {Code::kOk, "other"});
  EXPECT_NE(Check().find("its answer is 'other', not 'q'"), std::string::npos) << Check();
  ledger_.Answered(1, Moment(6), {Code::kOk, "q"});
  EXPECT_NE(Check().find("it has 2 answers"), std::string::npos) << Check();
  ledger_.Answered(Ask(0), Moment(101), {Code::kOk, "q"});
  EXPECT_NE(Check().find("its answer took 101 ms"), std::string::npos) << Check();
  ledger_.Answered(Ask(0), Moment(1), {Code::kInternal, "oops"});
  EXPECT_NE(Check().find("it failed as INTERNAL: oops"), std::string::npos) << Check();
}

TEST_F(Requests, NothingIsServedPastItsRemoval) {
  Registry(Kind::kDeploy, "f/1", 0, 1);
  Registry(Kind::kRemove, "f/1", 20, 25);
  ledger_.Answered(Ask(22), Moment(40), {Code::kOk, "q"});
  ledger_.Answered(Ask(30), Moment(40), {Code::kOk, "q"});
  EXPECT_EQ(Check(), "") << "the request came before the gateway could know of the acknowledgement";
  ledger_.Answered(Ask(36), Moment(40), {Code::kOk, "q"});
  EXPECT_NE(Check().find("request 3 for f at gateway-1"), std::string::npos) << Check();
  rules_.silences = {{"gateway-1", Moment(30), Moment(50)}};
  EXPECT_EQ(Check(), "") << "this gateway could not be told";
  rules_.silences.clear();
  Registry(Kind::kDeploy, "f/2", 38, 60);
  EXPECT_EQ(Check(), "") << "another version may have come";
}

TEST_F(Requests, AFunctionThatIsDeployedIsNotNotFound) {
  Registry(Kind::kDeploy, "f/1", 0, 1);
  ledger_.Answered(Ask(5), Moment(6), {Code::kNotFound, "no f"});
  EXPECT_EQ(Check(), "") << "this gateway could not know of it yet";
  ledger_.Answered(Ask(20), Moment(21), {Code::kNotFound, "no f"});
  EXPECT_NE(Check().find("it was told 'no f' of a function that is deployed"), std::string::npos) << Check();
  Registry(Kind::kRemove, "f/1", 21, 30);
  EXPECT_EQ(Check(), "") << "the removal of the function had begun";
}

TEST_F(Requests, AGatewayThatHearsNothingKnowsWhatItKnewBefore) {
  Registry(Kind::kDeploy, "f/1", 0, 10);
  rules_.silences = {{"gateway-1", Moment(15), Moment(40)},
                     {"gateway-1", Moment(30), Moment(60)},
                     {"gateway-2", Moment(0), Moment(99)}};
  ledger_.Answered(Ask(55), Moment(56), {Code::kNotFound, "no f"});
  EXPECT_EQ(Check(), "")
      << "the gateway may not have heard of it before the first silence, which the second prolonged";
  rules_.silences = {{"gateway-1", Moment(30), Moment(60)}};
  EXPECT_NE(Check().find("of a function that is deployed"), std::string::npos) << Check();
}

TEST(StoreWatch, WhatWasAcknowledgedIsThere) {
  StoreWatch watch;
  storage::FakeMetadataStore store;
  storage::Batch batch;
  batch.Put(Table::kFunctions, "f/1", std::string("record"));
  watch.Written(batch, true, Moment(1));
  ASSERT_EQ(watch.CheckKept(store).size(), 1u);
  EXPECT_NE(watch.CheckKept(store)[0].find("record f/1 of table functions was acknowledged"),
            std::string::npos)
      << watch.CheckKept(store)[0];
  ASSERT_TRUE(storage::CommitAndWait(store, batch).ok());
  EXPECT_TRUE(watch.CheckKept(store).empty());
  storage::Batch removal;
  removal.Delete(Table::kFunctions, "f/1");
  watch.Written(removal, false, Moment(2));
  EXPECT_TRUE(watch.CheckKept(store).empty()) << "the removal was not acknowledged";
  watch.Written(removal, true, Moment(3));
  EXPECT_EQ(watch.CheckKept(store).size(), 1u);
}

TEST(StoreWatch, NothingIsKeptTwice) {
  StoreWatch watch;
  const auto write = [&](Table table, const std::string& key, const std::string& value, bool acknowledged) {
    storage::Batch batch;
    batch.Put(table, key, value);
    watch.Written(batch, acknowledged, Moment(1));
    return watch.broken().size();
  };
  EXPECT_EQ(write(Table::kSteps, "run/a", "x", false), 0u);
  EXPECT_EQ(write(Table::kSteps, "run/a", "x", true), 0u) << "the first was not acknowledged";
  EXPECT_EQ(write(Table::kSteps, "run/a", "x", true), 1u);
  proto::CommitStep kept;
  kept.add_outputs()->mutable_kept();
  EXPECT_EQ(write(Table::kSteps, "run/b", kept.SerializeAsString(), true), 1u);
  EXPECT_EQ(write(Table::kSteps, "run/b", "y", true), 1u) << "what was only on a GPU may be computed again";
  EXPECT_EQ(write(Table::kSettings, "epoch", "5", true), 1u);
  EXPECT_EQ(write(Table::kSettings, "epoch", "6", true), 1u);
  EXPECT_EQ(write(Table::kSettings, "epoch", "6", true), 2u);
  proto::RunRecord run;
  run.set_state(proto::RUN_RUNNING);
  EXPECT_EQ(write(Table::kRuns, "run", run.SerializeAsString(), true), 2u);
  run.set_state(proto::RUN_SUCCEEDED);
  EXPECT_EQ(write(Table::kRuns, "run", run.SerializeAsString(), true), 2u);
  run.set_state(proto::RUN_CANCELLED);
  EXPECT_EQ(write(Table::kRuns, "run", run.SerializeAsString(), true), 3u);
}

TEST(RunCheck, AnAnsweredRunHasSucceededWithEachStepOnce) {
  RequestLedger ledger;
  ledger.Answered(ledger.Asked({.function = "chain", .question = "q"}), Moment(1), {Code::kOk, "q"});
  RunRules rules{.workflow = "chain", .steps = 1, .cancelled = {}};
  EXPECT_EQ(CheckRuns(ledger, {}, rules).size(), 1u) << "the run is lost";
  proto::RunRecord run;
  run.mutable_start()->set_run("r");
  run.mutable_start()->set_workflow("chain");
  run.set_state(proto::RUN_SUCCEEDED);
  run.add_outputs()->set_inlined("q");
  EXPECT_EQ(CheckRuns(ledger, {run}, rules).size(), 1u) << "the step of the run is lost";
  run.add_steps()->set_step("only");
  EXPECT_TRUE(CheckRuns(ledger, {run}, rules).empty());
  EXPECT_EQ(CheckRuns(ledger, {run, run}, rules).size(), 1u) << "two runs stand for one answer";
  rules.cancelled = {"r"};
  EXPECT_EQ(CheckRuns(ledger, {run}, rules).size(), 1u);
  rules.cancelled = {"gone"};
  EXPECT_EQ(CheckRuns(ledger, {run}, rules).size(), 1u);
  rules.cancelled.clear();
  proto::RunRecord open;
  open.set_state(proto::RUN_RUNNING);
  EXPECT_EQ(CheckRuns(ledger, {run, open}, rules).size(), 1u);
  auto other = run;
  other.mutable_start()->set_workflow("a model in stages");
  other.mutable_steps()->Clear();
  EXPECT_TRUE(CheckRuns(ledger, {run, other}, rules).empty());
}

TEST(RunCheck, AKeyIsOneRunAndItsEndIsTheSameForAll) {
  RequestLedger ledger;
  const RequestRecord request{.function = "chain", .question = "q", .key = "k", .run = true};
  ledger.Answered(ledger.Asked(request), Moment(1), {Code::kInternal, "its step failed"});
  const RunRules rules{.workflow = "chain", .steps = 0, .cancelled = {}};
  proto::RunRecord failed;
  failed.mutable_start()->set_run("k");
  failed.mutable_start()->set_workflow("chain");
  failed.mutable_start()->add_inputs()->set_inlined("q");
  failed.set_state(proto::RUN_FAILED);
  EXPECT_TRUE(CheckRuns(ledger, {failed}, rules).empty());
  auto second = failed;
  second.mutable_start()->set_run("k-2");
  EXPECT_EQ(CheckRuns(ledger, {failed, second}, rules).size(), 1u) << "the key has another run";
  auto succeeded = failed;
  succeeded.set_state(proto::RUN_SUCCEEDED);
  succeeded.add_outputs()->set_inlined("q");
  EXPECT_EQ(CheckRuns(ledger, {succeeded}, rules).size(), 1u)
      << "the client was told that the run had failed";
}

class StateCheck : public ::testing::Test {
 protected:
  void Seen(int asked, int answered, std::int64_t runs, const std::string& key = "", std::uint64_t life = 1) {
    RequestRecord request{.gateway = "gateway-1", .life = life, .function = "s", .asked = Moment(asked)};
    request.key = key;
    ledger_.Answered(ledger_.Asked(request), Moment(answered), {Code::kOk, "q", runs});
  }
  std::string Check() {
    std::string all;
    for (const auto& line : CheckStates(ledger_, rules_)) all += line + "\n";
    return all;
  }
  RequestLedger ledger_;
  StateRules rules_{.functions = {"s"}};
};

TEST_F(StateCheck, EachAnswerCountsAndWhatWasAcknowledgedStays) {
  Seen(0, 10, 1);
  Seen(0, 30, 3);
  Seen(5, 20, 5);
  EXPECT_EQ(Check(), "") << "runs whose answers were lost count too";
  Seen(25, 40, 4);
  EXPECT_NE(Check().find("what was acknowledged is lost: request 3"), std::string::npos) << Check();
  rules_.lost = {Moment(22)};
  EXPECT_EQ(Check(), "") << "a disk was lost in between";
}

// "d" is deployed at 0 ms and, when it has been removed, at 100 ms.
TEST_F(StateCheck, EachDeploymentBeginsAnew) {
  rules_.redeployed = "d";
  const auto change = [this](Kind kind, int from) {
    rules_.registry.push_back({.kind = kind,
                               .key = "d/1",
                               .result = Result::kDone,
                               .invoked = Moment(from),
                               .returned = Moment(from + 5)});
  };
  const auto seen = [this](int asked, int answered, std::int64_t runs) {
    ledger_.Answered(ledger_.Asked({.gateway = "gateway-1", .function = "d", .asked = Moment(asked)}),
                     Moment(answered), {.runs = runs, .version = "1"});
  };
  change(Kind::kDeploy, 0);
  seen(10, 20, 1);
  seen(30, 40, 6);
  EXPECT_EQ(Check(), "") << "requests may have counted again";
  change(Kind::kRemove, 80);
  change(Kind::kDeploy, 100);
  seen(83, 103, 7);
  EXPECT_EQ(Check(), "") << "it was under way when the function was removed";
  seen(110, 120, 1);
  EXPECT_EQ(Check(), "");
  seen(130, 140, 1);
  EXPECT_NE(Check().find("two were computed on the same state"), std::string::npos) << Check();
  ledger_ = {};
  seen(110, 120, 7);
  EXPECT_NE(Check().find("has count 7, and only 1 had been asked for"), std::string::npos) << Check();
}

TEST_F(StateCheck, NoTwoAreComputedOnTheSameState) {
  Seen(0, 10, 1);
  Seen(0, 11, 1);
  EXPECT_NE(Check().find("two were computed on the same state"), std::string::npos) << Check();
  rules_.lost = {Moment(12)};
  EXPECT_NE(Check(), "") << "the disk was lost later";
}

TEST_F(StateCheck, AnAnswerWithoutACountIsWrong) {
  Seen(0, 10, -1);
  EXPECT_NE(Check().find("has count -1"), std::string::npos) << Check();
}

TEST_F(StateCheck, AKeyIsOneComputationOfOneLifeOfAGateway) {
  Seen(0, 10, 1, "k");
  Seen(20, 21, 1, "k");
  Seen(30, 40, 2, "k", 2);
  EXPECT_EQ(Check(), "") << "a gateway that was started again knows no keys";
  Seen(50, 60, 3, "k");
  EXPECT_NE(Check().find("key 'k' was answered by two computations"), std::string::npos) << Check();
}

TEST_F(StateCheck, NothingCountsTwiceWhenNothingIsRepeated) {
  ledger_.Asked({.function = "chain", .asked = Moment(5)});
  Seen(0, 10, 2);
  rules_.once = true;
  EXPECT_NE(Check().find("only 1 had been asked for"), std::string::npos) << Check();
  rules_.callers = {"chain"};
  EXPECT_EQ(Check(), "") << "the run's step may have come before";
  rules_.callers.clear();
  rules_.once = false;
  EXPECT_EQ(Check(), "");
}

TEST(CountCheck, AGatewayCountsWhatItsClientsSaw) {
  RequestLedger ledger;
  const RequestRecord request{.gateway = "gateway-1", .life = 1};
  ledger.Answered(ledger.Asked(request), Moment(1), {Code::kOk, "q"});
  ledger.Answered(ledger.Asked(request), Moment(1), {Code::kUnavailable, "no"});
  ledger.Answered(ledger.Asked(request), Moment(2), {.said = "q", .again = true});
  EXPECT_TRUE(CheckCounts(ledger, {{"gateway-1", 1, 1, 1}, {"gateway-1", 2, 0, 0}}).empty());
  EXPECT_EQ(CheckCounts(ledger, {{"gateway-1", 1, 2, 1}}).size(), 1u);
  EXPECT_EQ(CheckCounts(ledger, {{"gateway-1", 1, 1, 1}, {"gateway-1", 2, 1, 0}}).size(), 1u);
}

}  // namespace
}  // namespace troupe::sim

// The parts of the cluster manager that are plain objects: run log, catalogue, placement table, mutations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/manager/catalogue.hpp"
#include "actors/manager/mutations.hpp"
#include "actors/manager/placement_table.hpp"
#include "actors/manager/update_feed.hpp"
#include "base/digest.hpp"
#include "base/random.hpp"
#include "cluster/cluster_view.hpp"
#include "storage/fake_metadata_store.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using storage::Table;

proto::StartRun StartOf(const std::string& run, const std::string& workflow = "flow") {
  proto::StartRun command;
  command.set_run(run);
  command.set_workflow(workflow);
  command.set_version("1");
  return command;
}

proto::CommitStep StepOf(const std::string& run, const std::string& step, const std::string& bytes = "x") {
  proto::CommitStep command;
  command.set_run(run);
  command.set_step(step);
  command.add_outputs()->set_inlined(bytes);
  return command;
}

proto::FinishRun FinishOf(const std::string& run, proto::RunState state, std::int64_t unix_ns = 0) {
  proto::FinishRun command;
  command.set_run(run);
  command.set_state(state);
  command.set_message("because");
  command.set_unix_ns(unix_ns);
  return command;
}

proto::FunctionRecord FunctionOf(const std::string& name, Bytes weights = MiB(1)) {
  proto::FunctionRecord record;
  record.mutable_key()->set_name(name);
  record.set_model_digest(Sha256Hex("model " + name));
  record.set_weights_digest(Sha256Hex("weights " + name));
  record.set_onnx_digest(Sha256Hex("onnx " + name));
  record.set_weights_bytes(weights.count());
  record.set_model_bytes(1000);
  record.set_loaded(true);
  record.mutable_slo()->set_deadline_ns(1000000);
  auto& input = *record.add_inputs();
  input.set_name("x");
  input.set_type(proto::FP32);
  input.add_shape(-1);
  *record.add_outputs() = input;
  record.mutable_outputs(0)->set_name("y");
  return record;
}

// --- run log ---

TEST(RunLog, ACommandAppliedTwiceChangesNothing) {
  RunLog log;
  for (int i = 0; i < 2; ++i) log.Apply(StartOf("r"));
  for (const char* bytes : {"first", "second"}) log.Apply(StepOf("r", "a", bytes));
  for (const auto state : {proto::RUN_SUCCEEDED, proto::RUN_FAILED}) log.Apply(FinishOf("r", state, 7));
  const auto* run = log.Find("r");
  ASSERT_NE(run, nullptr);
  ASSERT_EQ(run->steps_size(), 1);
  EXPECT_EQ(run->steps(0).outputs(0).inlined(), "first") << "what was acknowledged stays";
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
                                         {0, false},  // as a release without codes kept it
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
    EXPECT_EQ(run->steps_size(), 1) << "what is committed stays";
    EXPECT_EQ(run->state(), passing ? proto::RUN_RUNNING : proto::RUN_FAILED) << code;
    if (!passing) continue;
    EXPECT_EQ(run->code(), 0);
    EXPECT_EQ(run->message(), "");
    EXPECT_TRUE(absl::IsAborted(log.ValidateCommit("r", 0))) << "who had it before is refused";
    log.Apply(claim);
    end.set_claim(1);
    log.Apply(end);
    EXPECT_EQ(log.Find("r")->state(), proto::RUN_FAILED) << "it may fail again";
    EXPECT_TRUE(log.TakeSurplus().empty()) << "it counts once among those that have ended";
  }
}

TEST(RunLog, RunsThatHaveEndedAreKeptUpToTheirNumberAndTheirBytes) {
  const auto end = [](RunLog& log, const std::string& run, std::size_t bytes) {
    log.Apply(StartOf(run));
    auto finish = FinishOf(run, proto::RUN_SUCCEEDED, 7);
    finish.add_outputs()->set_inlined(std::string(bytes, 'x'));
    log.Apply(finish);
    log.Apply(finish);  // counted once
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
  EXPECT_TRUE(absl::IsAborted(log.ValidateCommit("r", 0))) << "nobody knows yet whether it will be stored";
  log.ClaimFailed("r");
  EXPECT_TRUE(log.ValidateCommit("r", 0).ok()) << "it was not";
  claim = log.BeginClaim("r", "b");
  for (int i = 0; i < 2; ++i) log.Apply(claim);
  EXPECT_EQ(log.Find("r")->gateway(), "b");
  EXPECT_EQ(log.Find("r")->claim(), 1u) << "applied twice changes nothing";
  const auto refused = log.ValidateCommit("r", 0);
  EXPECT_TRUE(absl::IsAborted(refused));
  EXPECT_NE(refused.message().find("gateway 'b'"), std::string::npos) << refused;
  EXPECT_TRUE(log.ValidateCommit("r", 1).ok());
  auto older = claim;
  older.set_gateway("c");
  log.Apply(older);
  EXPECT_EQ(log.Find("r")->gateway(), "b") << "an old command again";
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
  EXPECT_TRUE(log.ValidateStart(StartOf("r")).ok()) << "the same submission again";
  EXPECT_TRUE(absl::IsAlreadyExists(log.ValidateStart(StartOf("r", "other"))));
}

TEST(RunLog, CommandsOfUnknownRunsAreDropped) {
  RunLog log;
  log.Apply(StepOf("r", "a"));
  log.Apply(FinishOf("r", proto::RUN_SUCCEEDED));
  EXPECT_EQ(log.Find("r"), nullptr);
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

// --- catalogue ---

// As the manager does it: committed first, applied after.
template <class Command>
void Write(Catalogue& catalogue, storage::MetadataStore& store, const Command& command) {
  ASSERT_TRUE(storage::CommitAndWait(store, catalogue.BatchFor(command)).ok());
  catalogue.Apply(command);
}

void Deploy(Catalogue& catalogue, storage::MetadataStore& store, const std::string& name) {
  proto::DeployFunction wish;
  *wish.mutable_record() = FunctionOf(name);
  const auto command = catalogue.functions().ValidateDeploy(wish);
  ASSERT_TRUE(command.ok()) << command.status();
  Write(catalogue, store, *command);
}

proto::WorkflowRecord FlowOf(const std::string& name) {
  proto::WorkflowRecord record;
  record.mutable_spec()->set_name(name);
  record.mutable_spec()->set_version("1");
  return record;
}

std::string TextOf(const google::protobuf::Message& message) {
  return message.ShortDebugString();
}

std::string RegistryText(const Catalogue& catalogue) {
  std::string text;
  for (const auto& [name, versions] : catalogue.functions().table().functions())
    for (auto [version, record] : versions) {
      record.clear_revision();
      text += TextOf(record) + "\n";
    }
  for (const auto& [name, versions] : catalogue.workflows().workflows())
    for (auto [version, record] : versions) {
      record.clear_revision();
      text += TextOf(record) + "\n";
    }
  for (const auto* run : catalogue.runs().List("")) text += TextOf(*run) + "\n";
  return text;
}

TEST(Catalogue, ARestartFindsTheSameRegistryWorkflowsAndRuns) {
  storage::FakeMetadataStore store;
  auto before = Catalogue::Load(store, "cluster-1");
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_TRUE(storage::CommitAndWait(store, before->BirthBatch()).ok());
  ASSERT_TRUE(storage::CommitAndWait(store, before->EpochBatch(41)).ok());
  before->ApplyEpoch(41);
  for (const char* name : {"z", "a", "a", "m"}) Deploy(*before, store, name);
  proto::RemoveFunction remove;
  remove.mutable_key()->set_name("m");
  remove.mutable_key()->set_version("1");
  Write(*before, store, remove);
  proto::SetFunctionLoaded unload;
  unload.mutable_key()->set_name("z");
  unload.mutable_key()->set_version("1");
  Write(*before, store, unload);
  for (const char* name : {"flow", "gone"}) Write(*before, store, FlowOf(name));
  proto::RemoveWorkflow remove_flow;
  remove_flow.set_name("gone");
  remove_flow.set_version("1");
  Write(*before, store, remove_flow);
  for (const char* run : {"running", "ended", "failed"}) Write(*before, store, StartOf(run));
  for (const char* run : {"running", "ended"}) Write(*before, store, before->BeginClaim(run, "gateway-2"));
  for (const char* step : {"a", "b"}) Write(*before, store, StepOf("running", step));
  Write(*before, store, FinishOf("ended", proto::RUN_SUCCEEDED, 5));
  Write(*before, store, FinishOf("failed", proto::RUN_FAILED));
  Write(*before, store, FinishOf("ended", proto::RUN_CANCELLED, 6));  // too late
  for (const char* run : {"lost", "reopened"}) {
    Write(*before, store, StartOf(run));
    Write(*before, store, StepOf(run, "a"));
    auto end = FinishOf(run, proto::RUN_FAILED, 8);
    end.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
    Write(*before, store, end);
  }
  Write(*before, store, before->BeginClaim("reopened", "gateway-3"));

  const auto after = Catalogue::Load(store, "another");
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->cluster(), "cluster-1") << "a store keeps its cluster";
  EXPECT_EQ(after->last_epoch(), 41u);
  EXPECT_GT(after->revision(), before->revision()) << "members must see that it is newer";
  EXPECT_EQ(RegistryText(*after), RegistryText(*before));
  EXPECT_EQ(after->functions().table().NewestVersion("a"), 2u);
  EXPECT_EQ(after->runs().Find("failed")->state(), proto::RUN_FAILED);
  for (const char* run : {"running", "ended", "failed", "lost", "reopened"})
    EXPECT_EQ(after->runs().Find(run)->SerializeAsString(), before->runs().Find(run)->SerializeAsString())
        << run;
  EXPECT_TRUE(MayReopen(*after->runs().Find("lost")));
  EXPECT_EQ(after->runs().Find("reopened")->state(), proto::RUN_RUNNING);
  EXPECT_EQ(after->runs().Find("reopened")->claim(), 1u);
  for (const char* run : {"running", "ended"}) {
    EXPECT_EQ(after->runs().Find(run)->gateway(), "gateway-2");
    EXPECT_EQ(after->runs().Find(run)->claim(), 1u) << "what the first owner computes is still refused";
  }
}

TEST(Catalogue, ARunOfTheFormatBeforeClaimsBelongsToItsGateway) {
  storage::FakeMetadataStore store;
  proto::RunRecord old;
  *old.mutable_start() = StartOf("r");
  old.mutable_start()->set_gateway("gateway-1");
  old.set_state(proto::RUN_RUNNING);
  storage::Batch batch;
  batch.Put(Table::kRuns, "r", old);
  batch.Put(Table::kSteps, "r/a", StepOf("r", "a"));
  ASSERT_TRUE(storage::CommitAndWait(store, std::move(batch)).ok());
  const auto catalogue = Catalogue::Load(store, "c");
  ASSERT_TRUE(catalogue.ok()) << catalogue.status();
  EXPECT_EQ(catalogue->runs().Find("r")->gateway(), "gateway-1");
  EXPECT_EQ(catalogue->runs().Find("r")->claim(), 0u);
  EXPECT_TRUE(catalogue->runs().ValidateCommit("r", 0).ok());
}

TEST(Catalogue, EachRestartBeginsAboveWhatMembersSaw) {
  storage::FakeMetadataStore store;
  std::uint64_t last = 0;
  for (int life = 0; life < 3; ++life) {
    auto catalogue = Catalogue::Load(store, "c");
    ASSERT_TRUE(catalogue.ok());
    EXPECT_GE(catalogue->revision(), last);
    EXPECT_TRUE(life == 0 || catalogue->revision() > last);
    ASSERT_TRUE(storage::CommitAndWait(store, catalogue->BirthBatch()).ok());
    for (int i = 0; i < 5; ++i) catalogue->Advance();
    Deploy(*catalogue, store, "f");
    for (int i = 0; i < 5; ++i) catalogue->Advance();  // membership: never stored
    last = catalogue->revision();
  }
}

TEST(Catalogue, ADamagedRecordIsAnErrorAndNotAnEmptyRegistry) {
  storage::FakeMetadataStore store;
  storage::Batch batch;
  batch.Put(Table::kFunctions, "f/1", "\xff\xff no record");
  ASSERT_TRUE(storage::CommitAndWait(store, std::move(batch)).ok());
  EXPECT_FALSE(Catalogue::Load(store, "c").ok());
  storage::FakeMetadataStore other;
  storage::Batch number;
  number.Put(Table::kSettings, "revision", "many");
  ASSERT_TRUE(storage::CommitAndWait(other, std::move(number)).ok());
  EXPECT_TRUE(absl::IsDataLoss(Catalogue::Load(other, "c").status()));
}

TEST(Catalogue, ARecordThatCouldNeverBeAppliedIsDamage) {
  for (const bool workflow : {false, true}) {
    storage::FakeMetadataStore store;
    storage::Batch batch;
    proto::FunctionRecord function;
    function.mutable_key()->set_name("f");
    function.mutable_key()->set_version("1000000000000000000");
    proto::WorkflowRecord flow;
    flow.mutable_spec()->set_name("f");
    flow.mutable_spec()->set_version("0");
    workflow ? batch.Put(Table::kWorkflows, "f/0", flow)
             : batch.Put(Table::kFunctions, "f/1000000000000000000", function);
    ASSERT_TRUE(storage::CommitAndWait(store, std::move(batch)).ok());
    EXPECT_TRUE(absl::IsDataLoss(Catalogue::Load(store, "c").status()));
  }
}

// --- update feed ---

class Feed : public ::testing::Test {
 protected:
  void SetUp() override {
    auto catalogue = Catalogue::Load(store_, "c");
    ASSERT_TRUE(catalogue.ok());
    catalogue_.emplace(*std::move(catalogue));
    feed_.emplace(*catalogue_);
    ASSERT_TRUE(storage::CommitAndWait(store_, catalogue_->BirthBatch()).ok());
    Deploy(*catalogue_, store_, "first");
    static_cast<void>(feed_->Next(*catalogue_, members_));
  }
  void Join(const std::string& name) {
    proto::JoinRequest request;
    request.mutable_member()->set_name(name);
    request.mutable_member()->set_kind(proto::MEMBER_GATEWAY);
    ASSERT_TRUE(members_.Join(request, Time(seconds(1))).ok());
    catalogue_->Advance();
  }
  void Remove(const std::string& name) {
    proto::RemoveFunction remove;
    remove.mutable_key()->set_name(name);
    remove.mutable_key()->set_version("1");
    Write(*catalogue_, store_, remove);
  }
  [[nodiscard]] proto::ClusterUpdate Next() { return feed_->Next(*catalogue_, members_); }
  [[nodiscard]] proto::ClusterUpdate Since(std::uint64_t known) {
    return UpdateFeed::Since(known, *catalogue_, members_);
  }

  storage::FakeMetadataStore store_;
  std::optional<Catalogue> catalogue_;
  cluster::MembershipTable members_;
  std::optional<UpdateFeed> feed_;
};

TEST_F(Feed, EachChangeIsToldOnceAndAlone) {
  for (int i = 0; i < 100; ++i) Deploy(*catalogue_, store_, "f" + std::to_string(i));
  EXPECT_EQ(Next().functions_size(), 100);
  Deploy(*catalogue_, store_, "g");
  auto update = Next();
  EXPECT_FALSE(update.snapshot());
  EXPECT_EQ(update.functions_size(), 1);
  EXPECT_EQ(update.members_size(), 0);
  EXPECT_FALSE(update.workflows_listed());
  Join("gateway-1");
  update = Next();
  EXPECT_EQ(update.functions_size(), 0);
  EXPECT_EQ(update.members_size(), 1);
  Write(*catalogue_, store_, FlowOf("flow"));
  Remove("g");
  update = Next();
  EXPECT_EQ(update.removed_size(), 1);
  EXPECT_EQ(update.workflows_size(), 1);
  EXPECT_EQ(update.members_size(), 0);
}

TEST_F(Feed, WhoMissedAnUpdateFindsTheGapAndIsBroughtUpToDate) {
  cluster::ClusterView view;
  ASSERT_TRUE(view.Apply(Since(0)).applied);
  Deploy(*catalogue_, store_, "a");
  static_cast<void>(Next());  // lost
  Remove("first");
  Deploy(*catalogue_, store_, "b");
  const auto later = Next();
  EXPECT_FALSE(view.Apply(later).applied);
  const auto missed = Since(view.revision());
  EXPECT_FALSE(missed.snapshot()) << "only what it missed";
  const auto change = view.Apply(missed);
  EXPECT_EQ(change.deployed.size(), 2u);
  EXPECT_EQ(change.removed.size(), 1u);
  EXPECT_TRUE(view.Apply(later).applied) << "late, and known already";
  EXPECT_EQ(view.functions().size(), 2u);
  EXPECT_EQ(view.revision(), catalogue_->revision());
}

TEST_F(Feed, WhoMissedWhoJoinedFindsTheGapAlsoWhenNothingElseChanges) {
  cluster::ClusterView view;
  ASSERT_TRUE(view.Apply(Since(0)).applied);
  Join("gateway-1");
  static_cast<void>(Next());  // lost
  catalogue_->Advance();      // as for the second of two that join at once: the update before told of both
  const auto empty = Next();
  EXPECT_EQ(empty.members_size(), 0);
  EXPECT_FALSE(view.Apply(empty).applied) << "else it would count as up to date without the member";
  ASSERT_TRUE(view.Apply(Since(view.revision())).applied);
  EXPECT_EQ(view.members().size(), 1u);
  EXPECT_EQ(view.revision(), catalogue_->revision());
}

TEST_F(Feed, AManagerThatRestartedTellsEverythingToWhomItDoesNotKnow) {
  cluster::ClusterView view;
  Deploy(*catalogue_, store_, "a");
  ASSERT_TRUE(view.Apply(Since(0)).applied);
  Remove("a");  // told to nobody
  auto again = Catalogue::Load(store_, "c");
  ASSERT_TRUE(again.ok());
  const auto update = UpdateFeed::Since(view.revision(), *again, members_);
  EXPECT_TRUE(update.snapshot()) << "what was removed before it began it cannot know";
  ASSERT_EQ(view.Apply(update).removed.size(), 1u);
  EXPECT_EQ(view.functions().size(), 1u);
  EXPECT_TRUE(UpdateFeed::Since(again->revision() + 5, *again, members_).snapshot()) << "ahead of it";
  again->Advance();
  EXPECT_FALSE(UpdateFeed::Since(view.revision(), *again, members_).snapshot());
}

// --- placement table ---

class PlacementTableTest : public ::testing::Test {
 protected:
  void Join(const std::string& node, const std::vector<std::string>& adopted = {}) {
    proto::JoinRequest request;
    auto& member = *request.mutable_member();
    member.set_name(node);
    member.set_kind(proto::MEMBER_NODE);
    member.set_address(node);
    member.set_host_region_bytes(GiB(1).count());
    auto& gpu = *member.add_gpus();
    gpu.set_memory_bytes(GiB(1).count());
    gpu.set_state("READY");
    ASSERT_TRUE(members_.Join(request, now_).ok());
    placement_->NodeJoined(node, adopted);
  }
  proto::LeaveRequest LeaveOf(const std::string& node) {
    proto::LeaveRequest leave;
    leave.set_name(node);
    leave.set_epoch(members_.Find(node)->record.epoch());
    return leave;
  }
  void AddFunction(const std::string& name, Bytes weights = MiB(1), bool loaded = true) {
    auto record = FunctionOf(name, weights);
    record.set_loaded(loaded);
    record.mutable_key()->set_version("1");
    functions_.Put(record);
    placement_->UsersChanged(record.model_digest());
  }
  // "+node" for an adoption, "-node" for a disownment, sorted as they came.
  std::vector<std::string> Plan() {
    std::vector<std::string> moves;
    for (const auto& move : placement_->Plan(functions_, members_, now_))
      moves.push_back((move.adopt ? "+" : "-") + move.node);
    return moves;
  }

  const std::string digest_ = Sha256Hex("model f");
  Time now_{seconds(100)};
  cluster::FunctionTable functions_;
  cluster::MembershipTable members_;
  std::optional<PlacementTable> placement_{std::in_place, 2, seconds(2)};
};

TEST_F(PlacementTableTest, ACopyIsAskedForOnceAndHeldWhenItIsAdopted) {
  AddFunction("f");
  Join("n1");
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n1"});
  EXPECT_TRUE(placement_->BeingAdopted(digest_));
  EXPECT_TRUE(Plan().empty()) << "it is on its way";
  placement_->Adopted(digest_, "n1");
  EXPECT_FALSE(placement_->BeingAdopted(digest_));
  EXPECT_EQ(placement_->HoldersOf(digest_), std::vector<std::string>{"n1"});
  EXPECT_TRUE(Plan().empty());
  Join("n2");
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n2"}) << "a second copy as soon as there is room for it";
}

TEST_F(PlacementTableTest, NothingIsPlannedWhileNothingHasChanged) {
  AddFunction("f");
  Join("n1");
  ASSERT_EQ(Plan().size(), 1u);
  const auto quiet = [&] {
    const auto before = placement_->plans();
    for (int i = 0; i < 10; ++i) {
      now_ += milliseconds(50);
      EXPECT_TRUE(Plan().empty());
    }
    return placement_->plans() - before;
  };
  EXPECT_EQ(quiet(), 0u);
  placement_->Adopted(digest_, "n1");
  EXPECT_EQ(quiet(), 1u);
  EXPECT_EQ(quiet(), 0u);
  AddFunction("g");
  EXPECT_EQ(Plan().size(), 1u);
  EXPECT_EQ(quiet(), 0u);
  Join("n2");
  EXPECT_EQ(Plan().size(), 2u);
  EXPECT_EQ(quiet(), 0u);
  ASSERT_TRUE(members_.SetDraining("n2", true).ok());
  EXPECT_EQ(quiet(), 1u) << "a node that takes nothing more is a change";
}

TEST_F(PlacementTableTest, AFailedAdoptionIsTriedAgainLaterAndNotAtOnce) {
  AddFunction("f");
  Join("n1");
  ASSERT_EQ(Plan().size(), 1u);
  placement_->AdoptFailed(digest_, "n1", now_);
  EXPECT_TRUE(Plan().empty());
  now_ += milliseconds(1999);
  EXPECT_TRUE(Plan().empty());
  now_ += milliseconds(1);
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n1"});
}

TEST_F(PlacementTableTest, ANodeThatComesBackSaysWhatItHolds) {
  AddFunction("f");
  Join("n1", {digest_});
  EXPECT_TRUE(Plan().empty());
  placement_->NodeGone("n1");
  EXPECT_TRUE(placement_->HoldersOf(digest_).empty());
  placement_->NodeJoined("n1", {digest_, digest_});
  EXPECT_EQ(placement_->HoldersOf(digest_), std::vector<std::string>{"n1"});
}

TEST_F(PlacementTableTest, ANodeThatLeavesWhileItAdoptsIsAskedAgainWhenItIsBack) {
  AddFunction("f");
  Join("n1");
  ASSERT_EQ(Plan().size(), 1u);
  placement_->NodeGone("n1");
  placement_->NodeJoined("n1", {});
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n1"});
}

TEST_F(PlacementTableTest, TheCopiesOfADrainingNodeGoOnlyOnceTheyWereReplaced) {
  AddFunction("f");
  placement_.emplace(1, seconds(2));
  Join("n1", {digest_});
  Join("n2");
  ASSERT_TRUE(members_.SetDraining("n1", true).ok());
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n2"});
  EXPECT_TRUE(Plan().empty()) << "the last copy stays until the new one is there";
  placement_->Adopted(digest_, "n2");
  EXPECT_EQ(Plan(), std::vector<std::string>{"-n1"});
  placement_->Disowned(digest_, "n1");
  EXPECT_EQ(placement_->HoldersOf(digest_), std::vector<std::string>{"n2"});
}

TEST_F(PlacementTableTest, WhatIsAskedForMostMovesFirstBehindWhatNobodyHolds) {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  std::vector<std::string> digests;
  for (const auto& name : names) {
    AddFunction(name);
    digests.push_back(Sha256Hex("model " + name));
  }
  const std::vector<std::string> kept = {digests[0], digests[1], digests[2]};
  Join("n1", kept);
  Join("n2", digests);
  ASSERT_TRUE(members_.Leave(LeaveOf("n2"), now_).ok());
  placement_->NodeGone("n2");  // a, b, c have a copy left, d and e have none
  Join("n3");
  placement_->Asked(digests[1], 5, now_);
  placement_->Asked(digests[2], 100, now_ - seconds(600));  // long ago
  placement_->Asked(digests[4], 1, now_);
  std::vector<std::string> order;
  for (const auto& move : placement_->Plan(functions_, members_, now_)) {
    const auto at = std::find(digests.begin(), digests.end(), move.digest) - digests.begin();
    const auto& name = names[static_cast<std::size_t>(at)];
    if (std::find(order.begin(), order.end(), name) == order.end()) order.push_back(name);
  }
  EXPECT_EQ(order, (std::vector<std::string>{"e", "d", "b", "c", "a"}));
}

TEST_F(PlacementTableTest, AModelThatNobodyUsesIsDisownedEverywhere) {
  Join("n1", {digest_});
  Join("n2", {digest_});
  auto moves = Plan();
  std::sort(moves.begin(), moves.end());
  EXPECT_EQ(moves, (std::vector<std::string>{"-n1", "-n2"}));
}

TEST_F(PlacementTableTest, AFunctionMoreDoesNotPlanTheOthersAnew) {
  for (const char* node : {"n1", "n2", "n3"}) Join(node);
  for (int i = 0; i < 50; ++i) {
    AddFunction("f" + std::to_string(i));
    EXPECT_EQ(Plan().size(), 2u);
  }
  EXPECT_EQ(placement_->plans(), 50u);
  EXPECT_EQ(placement_->full_plans(), 1u) << "the first one";
}

// What is planned model by model is what a plan of all of them gives, also when regions fill up, nodes come
// and go, and adoptions fail.
TEST_F(PlacementTableTest, PlansOfSomeModelsAddUpToAPlanOfAll) {
  std::size_t tight = 0;
  std::size_t some = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    placement_.emplace(2, seconds(2));
    functions_.Clear();
    members_ = cluster::MembershipTable();
    std::map<std::string, Bytes> weights;
    cluster::PlacementMap held;
    const auto node = [&] { return "n" + std::to_string(random.Below(5)); };
    for (int step = 0; step < 120; ++step) {
      now_ += milliseconds(100);
      const auto name = "f" + std::to_string(random.Below(30));
      switch (random.Below(6)) {
        case 0:
          Join(node());
          break;
        case 1:
          if (const auto gone = node(); members_.Find(gone) != nullptr) {
            proto::LeaveRequest leave;
            leave.set_name(gone);
            leave.set_epoch(members_.Find(gone)->record.epoch());
            if (members_.Leave(leave, now_).ok()) placement_->NodeGone(gone);
          }
          break;
        case 2: {
          proto::FunctionKey key;
          key.set_name(name);
          key.set_version("1");
          if (functions_.Remove(key)) placement_->UsersChanged(Sha256Hex("model " + name));
          break;
        }
        default:
          AddFunction(name, MiB(20 + random.Below(seed % 2 == 0 ? 20 : 200)), random.Below(4) != 0);
      }
      for (const auto& move : placement_->Plan(functions_, members_, now_)) {
        if (!move.adopt) {
          placement_->Disowned(move.digest, move.node);
        } else if (random.Below(5) == 0) {
          placement_->AdoptFailed(move.digest, move.node, now_);
        } else {
          placement_->Adopted(move.digest, move.node);
        }
      }
      static_cast<void>(placement_->Plan(functions_, members_, now_));
      const auto planned = placement_->Planned();
      PlacementTable anew(2, seconds(2));
      for (const auto& [member, record] : members_.members()) {
        std::vector<std::string> adopted;
        for (const auto& [digest, use] : functions_.models())
          if (const auto holders = placement_->HoldersOf(digest);
              std::ranges::find(holders, member) != holders.end())
            adopted.push_back(digest);
        anew.NodeJoined(member, adopted);
      }
      static_cast<void>(anew.Plan(functions_, members_, now_));
      ASSERT_EQ(planned, anew.Planned()) << "seed " << seed << ", step " << step;
    }
    some += placement_->plans() - placement_->full_plans();
    tight += seed % 2 == 0 ? 0 : placement_->full_plans();
  }
  EXPECT_GT(some, 100u) << "hardly a plan was of some models only";
  EXPECT_GT(tight, 100u) << "the regions were never full";
}

TEST_F(PlacementTableTest, AnAdoptionThatIsGivenUpIsNotUnderWay) {
  Join("n1");
  AddFunction("f");
  ASSERT_EQ(Plan(), std::vector<std::string>{"+n1"});
  ASSERT_TRUE(placement_->BeingAdopted(digest_));
  placement_->Disowned(digest_, "n1");  // its function was removed before the node was asked
  EXPECT_FALSE(placement_->BeingAdopted(digest_));
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n1"}) << "deployed again, it is asked for again";
}

TEST_F(PlacementTableTest, AModelThatNoNodeCanHoldIsRefusedWithSizes) {
  EXPECT_TRUE(PlacementTable::CheckFits(FunctionOf("f", GiB(9)), members_).ok()) << "no node yet";
  Join("n1");
  EXPECT_TRUE(PlacementTable::CheckFits(FunctionOf("f"), members_).ok());
  const auto refused = PlacementTable::CheckFits(FunctionOf("f", GiB(9)), members_);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_NE(refused.message().find("GiB"), std::string::npos) << refused;
}

// --- mutations ---

class MutationsTest : public ::testing::Test {
 protected:
  Mutations::Mutation Named(const std::string& name) {
    return {[this, name]() -> absl::StatusOr<storage::Batch> {
              trace_ += "prepare " + name + ", ";
              storage::Batch batch;
              batch.Put(Table::kSettings, name, "1");
              return batch;
            },
            [this, name] { trace_ += "apply " + name + ", "; },
            [this, name](const absl::Status& status) {
              trace_ += (status.ok() ? "ok " : absl::StatusCodeToString(status.code()) + " ") + name + ", ";
            }};
  }
  std::string Take() { return std::exchange(trace_, std::string()); }

  std::string trace_;
  storage::FakeMetadataStore store_;
  Mutations mutations_{[this](storage::Batch batch, std::function<void(absl::Status)> done) {
                         store_.Commit(std::move(batch), std::move(done));
                       },
                       3};
};

TEST_F(MutationsTest, TheSecondIsValidatedAfterTheFirstIsApplied) {
  store_.Hold();
  mutations_.Add(Named("a"));
  mutations_.Add(Named("b"));
  EXPECT_EQ(Take(), "prepare a, ");
  ASSERT_TRUE(store_.CompleteNext());
  EXPECT_EQ(Take(), "apply a, ok a, prepare b, ");
  ASSERT_TRUE(store_.CompleteNext());
  EXPECT_EQ(Take(), "apply b, ok b, ");
  EXPECT_FALSE(store_.CompleteNext());
}

TEST_F(MutationsTest, WhatIsNotStoredIsNotApplied) {
  store_.FailNext(absl::ResourceExhaustedError("disk full"));
  mutations_.Add(Named("a"));
  EXPECT_EQ(Take(), "prepare a, RESOURCE_EXHAUSTED a, ");
  auto refused = Named("b");
  refused.prepare = []() -> absl::StatusOr<storage::Batch> { return absl::NotFoundError("no b"); };
  mutations_.Add(std::move(refused));
  mutations_.Add(Named("c"));
  EXPECT_EQ(Take(), "NOT_FOUND b, prepare c, apply c, ok c, ");
  EXPECT_TRUE(absl::IsNotFound(store_.Get(Table::kSettings, "a").status()));
}

TEST_F(MutationsTest, AnAnswerMayAddAnother) {
  auto first = Named("a");
  first.answer = [this](const absl::Status&) {
    trace_ += "answer a, ";
    mutations_.Add(Named("b"));
    trace_ += "added b, ";
  };
  mutations_.Add(std::move(first));
  EXPECT_EQ(Take(), "prepare a, apply a, answer a, added b, prepare b, apply b, ok b, ");
}

TEST_F(MutationsTest, AFullQueueRefusesAndLosesNothing) {
  store_.Hold();
  for (const char* name : {"a", "b", "c", "d"}) mutations_.Add(Named(name));
  EXPECT_EQ(Take(), "prepare a, RESOURCE_EXHAUSTED d, ");
  store_.Release();
  EXPECT_EQ(Take(), "apply a, ok a, prepare b, apply b, ok b, prepare c, apply c, ok c, ");
}

TEST_F(MutationsTest, ALateAcknowledgementAfterClearDoesNothing) {
  store_.Hold();
  mutations_.Add(Named("a"));
  mutations_.Clear();
  Take();
  store_.Release();
  EXPECT_EQ(Take(), "");
}

}  // namespace
}  // namespace troupe::actors

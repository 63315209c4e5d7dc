// The parts of the cluster manager that are plain objects: run log, catalogue, placement board, mutations.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/manager/catalogue.hpp"
#include "actors/manager/mutations.hpp"
#include "actors/manager/placement_board.hpp"
#include "base/digest.hpp"
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

TEST(RunLog, ACancelledRunRefusesCommits) {
  RunLog log;
  EXPECT_TRUE(absl::IsNotFound(log.ValidateCommit("r")));
  log.Apply(StartOf("r"));
  EXPECT_TRUE(log.ValidateCommit("r").ok());
  log.Apply(FinishOf("r", proto::RUN_CANCELLED));
  EXPECT_TRUE(absl::IsFailedPrecondition(log.ValidateCommit("r")));
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
  RunLog log(2);
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
  for (const char* step : {"a", "b"}) Write(*before, store, StepOf("running", step));
  Write(*before, store, FinishOf("ended", proto::RUN_SUCCEEDED, 5));
  Write(*before, store, FinishOf("failed", proto::RUN_FAILED));
  Write(*before, store, FinishOf("ended", proto::RUN_CANCELLED, 6));  // too late

  const auto after = Catalogue::Load(store, "another");
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->cluster(), "cluster-1") << "a store keeps its cluster";
  EXPECT_EQ(after->last_epoch(), 41u);
  EXPECT_GT(after->revision(), before->revision()) << "members must see that it is newer";
  EXPECT_EQ(RegistryText(*after), RegistryText(*before));
  EXPECT_EQ(after->functions().table().NewestVersion("a"), 2u);
  EXPECT_EQ(after->runs().Find("failed")->state(), proto::RUN_FAILED);
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

// --- placement board ---

class Board : public ::testing::Test {
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
    board_->NodeJoined(node, adopted);
  }
  void AddFunction(const std::string& name) {
    auto record = FunctionOf(name);
    record.mutable_key()->set_version("1");
    functions_.Put(record);
    ++revision_;
  }
  // "+node" for an adoption, "-node" for a disownment, sorted as they came.
  std::vector<std::string> Plan() {
    std::vector<std::string> moves;
    for (const auto& move : board_->Plan(functions_, revision_, members_, now_))
      moves.push_back((move.adopt ? "+" : "-") + move.node);
    return moves;
  }

  const std::string digest_ = Sha256Hex("model f");
  Time now_{seconds(100)};
  cluster::FunctionTable functions_;
  std::uint64_t revision_ = 1;
  cluster::MembershipTable members_;
  std::optional<PlacementBoard> board_{std::in_place, 2, seconds(2)};
};

TEST_F(Board, ACopyIsAskedForOnceAndHeldWhenItIsAdopted) {
  AddFunction("f");
  Join("n1");
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n1"});
  EXPECT_TRUE(board_->BeingAdopted(digest_));
  EXPECT_TRUE(Plan().empty()) << "it is on its way";
  board_->Adopted(digest_, "n1");
  EXPECT_FALSE(board_->BeingAdopted(digest_));
  EXPECT_EQ(board_->HoldersOf(digest_), std::vector<std::string>{"n1"});
  EXPECT_TRUE(Plan().empty());
  Join("n2");
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n2"}) << "a second copy as soon as there is room for it";
}

TEST_F(Board, NothingIsPlannedWhileNothingHasChanged) {
  AddFunction("f");
  Join("n1");
  ASSERT_EQ(Plan().size(), 1u);
  const auto quiet = [&] {
    const auto before = board_->plans();
    for (int i = 0; i < 10; ++i) {
      now_ += milliseconds(50);
      EXPECT_TRUE(Plan().empty());
    }
    return board_->plans() - before;
  };
  EXPECT_EQ(quiet(), 0u);
  board_->Adopted(digest_, "n1");
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

TEST_F(Board, AFailedAdoptionIsTriedAgainLaterAndNotAtOnce) {
  AddFunction("f");
  Join("n1");
  ASSERT_EQ(Plan().size(), 1u);
  board_->AdoptFailed(digest_, "n1", now_);
  EXPECT_TRUE(Plan().empty());
  now_ += milliseconds(1999);
  EXPECT_TRUE(Plan().empty());
  now_ += milliseconds(1);
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n1"});
}

TEST_F(Board, ANodeThatComesBackSaysWhatItHolds) {
  AddFunction("f");
  Join("n1", {digest_});
  EXPECT_TRUE(Plan().empty());
  board_->NodeGone("n1");
  EXPECT_TRUE(board_->HoldersOf(digest_).empty());
  EXPECT_TRUE(board_->Records().empty());
  board_->NodeJoined("n1", {digest_, digest_});
  EXPECT_EQ(board_->HoldersOf(digest_), std::vector<std::string>{"n1"});
  ASSERT_EQ(board_->Records().size(), 1u);
  EXPECT_EQ(board_->Records()[0].model_digest(), digest_);
}

TEST_F(Board, ANodeThatLeavesWhileItAdoptsIsAskedAgainWhenItIsBack) {
  AddFunction("f");
  Join("n1");
  ASSERT_EQ(Plan().size(), 1u);
  board_->NodeGone("n1");
  board_->NodeJoined("n1", {});
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n1"});
}

TEST_F(Board, TheCopiesOfADrainingNodeGoOnlyOnceTheyWereReplaced) {
  AddFunction("f");
  board_.emplace(1, seconds(2));
  Join("n1", {digest_});
  Join("n2");
  ASSERT_TRUE(members_.SetDraining("n1", true).ok());
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n2"});
  EXPECT_TRUE(Plan().empty()) << "the last copy stays until the new one is there";
  board_->Adopted(digest_, "n2");
  EXPECT_EQ(Plan(), std::vector<std::string>{"-n1"});
  board_->Disowned(digest_, "n1");
  EXPECT_EQ(board_->HoldersOf(digest_), std::vector<std::string>{"n2"});
}

TEST_F(Board, AModelThatNobodyUsesIsDisownedEverywhere) {
  Join("n1", {digest_});
  Join("n2", {digest_});
  auto moves = Plan();
  std::sort(moves.begin(), moves.end());
  EXPECT_EQ(moves, (std::vector<std::string>{"-n1", "-n2"}));
}

TEST_F(Board, AModelThatNoNodeCanHoldIsRefusedWithSizes) {
  EXPECT_TRUE(PlacementBoard::CheckFits(FunctionOf("f", GiB(9)), members_).ok()) << "no node yet";
  Join("n1");
  EXPECT_TRUE(PlacementBoard::CheckFits(FunctionOf("f"), members_).ok());
  const auto refused = PlacementBoard::CheckFits(FunctionOf("f", GiB(9)), members_);
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

// What the manager's store keeps of a cluster, and what a restarted manager finds there.
#include "actors/manager/stored_catalogue.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "cluster/records/catalogue_changes.hpp"
#include "storage/fake_metadata_store.hpp"
#include "tests/unit/cluster/records.hpp"

namespace troupe::actors {
namespace {

using cluster::Catalogue;
using cluster::FinishOf;
using cluster::FlowOf;
using cluster::FunctionOf;
using cluster::MayReopen;
using cluster::StartOf;
using cluster::StepOf;
using storage::Table;

// Commits the record first and applies it after, as the manager does it.
template <class Command>
void Write(Catalogue& catalogue, storage::MetadataStore& store, const Command& command) {
  ASSERT_TRUE(storage::CommitAndWait(store, BatchOf(ChangesFor(catalogue, command))).ok());
  catalogue.Apply(command);
}

void Deploy(Catalogue& catalogue, storage::MetadataStore& store, const std::string& name) {
  proto::DeployFunction wish;
  *wish.mutable_record() = FunctionOf(name);
  const auto command = catalogue.functions().ValidateDeploy(wish);
  ASSERT_TRUE(command.ok()) << command.status();
  Write(catalogue, store, *command);
}

std::string TextOf(const google::protobuf::Message& message) {
  return message.ShortDebugString();
}

std::string RegistryText(const Catalogue& catalogue) {
  std::string text;
  catalogue.functions().table().ForEach([&](proto::FunctionRecord record) {
    record.clear_revision();
    text += TextOf(record) + "\n";
  });
  for (const auto& [name, versions] : catalogue.workflows().workflows())
    for (auto [version, record] : versions) {
      record.clear_revision();
      text += TextOf(record) + "\n";
    }
  for (const auto* run : catalogue.runs().List("")) text += TextOf(*run) + "\n";
  return text;
}

TEST(StoredCatalogue, ARestartFindsTheSameRegistryWorkflowsAndRuns) {
  storage::FakeMetadataStore store;
  auto before = LoadCatalogue(store, "cluster-1");
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_TRUE(storage::CommitAndWait(store, BatchOf(BirthChanges(*before))).ok());
  ASSERT_TRUE(storage::CommitAndWait(store, BatchOf(EpochChanges(*before, 41))).ok());
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
  proto::SetFunctionSharing share;
  share.mutable_key()->set_name("a");
  share.mutable_key()->set_version("2");
  share.mutable_sharing()->set_quota_limit(80);
  Write(*before, store, share);
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
  Write(*before, store, FinishOf("ended", proto::RUN_CANCELLED, 6));  // this end comes too late
  for (const char* run : {"lost", "reopened"}) {
    Write(*before, store, StartOf(run));
    Write(*before, store, StepOf(run, "a"));
    auto end = FinishOf(run, proto::RUN_FAILED, 8);
    end.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
    Write(*before, store, end);
  }
  Write(*before, store, before->BeginClaim("reopened", "gateway-3"));

  const auto after = LoadCatalogue(store, "another");
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->cluster(), "cluster-1") << "the store lost its cluster";
  EXPECT_EQ(after->last_epoch(), 41u);
  EXPECT_GT(after->revision(), before->revision()) << "members must see that the catalogue is newer";
  EXPECT_EQ(RegistryText(*after), RegistryText(*before));
  EXPECT_EQ(after->functions().table().NewestVersion("a"), 2u);
  EXPECT_EQ(after->functions().table().Find(share.key())->sharing().quota_limit(), 80u);
  EXPECT_EQ(after->runs().Find("failed")->state(), proto::RUN_FAILED);
  for (const char* run : {"running", "ended", "failed", "lost", "reopened"})
    EXPECT_EQ(after->runs().Find(run)->SerializeAsString(), before->runs().Find(run)->SerializeAsString())
        << run;
  EXPECT_TRUE(MayReopen(*after->runs().Find("lost")));
  EXPECT_EQ(after->runs().Find("reopened")->state(), proto::RUN_RUNNING);
  EXPECT_EQ(after->runs().Find("reopened")->claim(), 1u);
  for (const char* run : {"running", "ended"}) {
    EXPECT_EQ(after->runs().Find(run)->gateway(), "gateway-2");
    EXPECT_EQ(after->runs().Find(run)->claim(), 1u) << "results of the first owner are still refused";
  }
}

TEST(StoredCatalogue, ARunOfTheFormatBeforeClaimsBelongsToItsGateway) {
  storage::FakeMetadataStore store;
  proto::RunRecord old;
  *old.mutable_start() = StartOf("r");
  old.mutable_start()->set_gateway("gateway-1");
  old.set_state(proto::RUN_RUNNING);
  storage::Batch batch;
  batch.Put(Table::kRuns, "r", old);
  batch.Put(Table::kSteps, "r/a", StepOf("r", "a"));
  ASSERT_TRUE(storage::CommitAndWait(store, std::move(batch)).ok());
  const auto catalogue = LoadCatalogue(store, "c");
  ASSERT_TRUE(catalogue.ok()) << catalogue.status();
  EXPECT_EQ(catalogue->runs().Find("r")->gateway(), "gateway-1");
  EXPECT_EQ(catalogue->runs().Find("r")->claim(), 0u);
  EXPECT_TRUE(catalogue->runs().ValidateCommit("r", 0).ok());
}

TEST(StoredCatalogue, EachRestartBeginsAboveWhatMembersSaw) {
  storage::FakeMetadataStore store;
  std::uint64_t last = 0;
  for (int life = 0; life < 3; ++life) {
    auto catalogue = LoadCatalogue(store, "c");
    ASSERT_TRUE(catalogue.ok());
    EXPECT_GE(catalogue->revision(), last);
    EXPECT_TRUE(life == 0 || catalogue->revision() > last);
    ASSERT_TRUE(storage::CommitAndWait(store, BatchOf(BirthChanges(*catalogue))).ok());
    for (int i = 0; i < 5; ++i) catalogue->Advance();
    Deploy(*catalogue, store, "f");
    for (int i = 0; i < 5; ++i) catalogue->Advance();  // changes of the members are never stored
    last = catalogue->revision();
  }
}

TEST(StoredCatalogue, ADamagedRecordIsAnErrorAndNotAnEmptyRegistry) {
  storage::FakeMetadataStore store;
  storage::Batch batch;
  batch.Put(Table::kFunctions, "f/1", "\xff\xff no record");
  ASSERT_TRUE(storage::CommitAndWait(store, std::move(batch)).ok());
  EXPECT_FALSE(LoadCatalogue(store, "c").ok());
  storage::FakeMetadataStore other;
  storage::Batch number;
  number.Put(Table::kSettings, "revision", "many");
  ASSERT_TRUE(storage::CommitAndWait(other, std::move(number)).ok());
  EXPECT_TRUE(absl::IsDataLoss(LoadCatalogue(other, "c").status()));
}

TEST(StoredCatalogue, ARecordThatCouldNeverBeAppliedIsDamage) {
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
    EXPECT_TRUE(absl::IsDataLoss(LoadCatalogue(store, "c").status()));
  }
}

// Records are read in the order of the tables, however one of them is damaged.
TEST(StoredCatalogue, OfTwoDamagedRecordsTheFirstIsNamed) {
  storage::FakeMetadataStore store;
  storage::Batch batch;
  proto::FunctionRecord function;
  function.mutable_key()->set_name("f");
  function.mutable_key()->set_version("0");
  batch.Put(Table::kFunctions, "f/0", function);
  batch.Put(Table::kWorkflows, "flow/1", "\xff\xff not a record");
  ASSERT_TRUE(storage::CommitAndWait(store, std::move(batch)).ok());
  const auto status = LoadCatalogue(store, "c").status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_NE(status.message().find("function 'f' with the version '0'"), std::string::npos) << status;
}

}  // namespace
}  // namespace troupe::actors

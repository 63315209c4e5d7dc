#include "actors/manager/catalogue.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "proto/admin.pb.h"

namespace troupe::actors {

namespace {

using storage::Batch;
using storage::Table;

constexpr char kCluster[] = "cluster";
constexpr char kEpoch[] = "epoch";
constexpr char kRevision[] = "revision";
constexpr char kHome[] = "state-home/";  // and a model's digest
constexpr char kDrained[] = "drained/";  // and a node's name
constexpr char kApiKey[] = "api-key/";   // and the key's name
// Revisions that members saw but the store did not (membership changes) lie above the stored one; a manager
// that comes back begins above all of them.
constexpr std::uint64_t kRestartGap = 1'000'000'000;

std::string KeyOf(const std::string& name, const std::string& version) {
  return absl::StrCat(name, "/", version);
}

absl::StatusOr<std::uint64_t> Number(const storage::MetadataStore& store, const char* key) {
  const auto text = store.Get(Table::kSettings, key);
  if (absl::IsNotFound(text.status())) return 0;
  TROUPE_RETURN_IF_ERROR(text.status());
  std::uint64_t number = 0;
  if (!absl::SimpleAtoi(*text, &number))
    return absl::DataLossError(absl::StrCat("setting ", key, " is not a valid number"));
  return number;
}

template <class Record>
Batch WithRevision(Batch batch, Table table, const std::string& key, Record record, std::uint64_t revision) {
  record.set_revision(revision);
  batch.Put(table, key, record);
  batch.Put(Table::kSettings, kRevision, absl::StrCat(revision));
  return batch;
}

Batch Removal(Table table, const std::string& key, std::uint64_t revision) {
  Batch batch;
  batch.Delete(table, key);
  batch.Put(Table::kSettings, kRevision, absl::StrCat(revision));
  return batch;
}

// What is on the disk is not trusted: such a record could never be applied.
absl::Status CheckVersion(const char* what, const std::string& name, const std::string& version) {
  if (cluster::VersionNumber(version) != 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the store has ", what, " '", name, "' with the version '", version,
                                          "', which is none; restore a backup (troupe store check)"));
}

// Records in the order in which they were made: the registries want growing revisions.
template <class Record>
absl::StatusOr<std::vector<Record>> ByRevision(const storage::MetadataStore& store, Table table) {
  std::vector<Record> records;
  TROUPE_RETURN_IF_ERROR(storage::ScanMessages<Record>(
      store, table, "", [&](std::string_view, Record record) { records.push_back(std::move(record)); }));
  std::sort(records.begin(), records.end(),
            [](const Record& a, const Record& b) { return a.revision() < b.revision(); });
  return records;
}

}  // namespace

absl::StatusOr<Catalogue> Catalogue::Load(const storage::MetadataStore& store,
                                          const std::string& cluster_id) {
  Catalogue out;
  const auto id = store.Get(Table::kSettings, kCluster);
  if (!id.ok() && !absl::IsNotFound(id.status())) return id.status();
  out.cluster_ = id.ok() ? *id : cluster_id;
  TROUPE_ASSIGN_OR_RETURN(out.last_epoch_, Number(store, kEpoch));
  TROUPE_ASSIGN_OR_RETURN(const std::uint64_t revision, Number(store, kRevision));
  TROUPE_ASSIGN_OR_RETURN(auto functions, ByRevision<proto::FunctionRecord>(store, Table::kFunctions));
  for (auto& record : functions) {
    TROUPE_RETURN_IF_ERROR(CheckVersion("function", record.key().name(), record.key().version()));
    proto::DeployFunction command;
    *command.mutable_record() = record;
    out.functions_.Apply(command, ++out.revision_);
  }
  TROUPE_ASSIGN_OR_RETURN(const auto workflows, ByRevision<proto::WorkflowRecord>(store, Table::kWorkflows));
  for (const auto& record : workflows) {
    TROUPE_RETURN_IF_ERROR(CheckVersion("workflow", record.spec().name(), record.spec().version()));
    out.workflows_.Apply(record, ++out.revision_);
  }
  TROUPE_RETURN_IF_ERROR(storage::ScanMessages<proto::PlacementRecord>(
      store, Table::kSettings, kHome, [&](std::string_view, const proto::PlacementRecord& home) {
        if (home.nodes_size() == 1) out.homes_[home.model_digest()] = home.nodes(0);
      }));
  TROUPE_RETURN_IF_ERROR(store.Scan(Table::kSettings, kDrained, [&](std::string_view key, std::string_view) {
    out.drained_.emplace(key.substr(sizeof(kDrained) - 1));
    return true;
  }));
  TROUPE_RETURN_IF_ERROR(storage::ScanMessages<proto::ApiKeyRecord>(
      store, Table::kSettings, kApiKey, [&](std::string_view, const proto::ApiKeyRecord& key) {
        proto::CreateApiKey command;
        *command.mutable_key() = key;
        out.keys_.Apply(command);
      }));
  TROUPE_RETURN_IF_ERROR(out.LoadRuns(store));
  out.revision_ = std::max(out.revision_, revision) + (id.ok() ? kRestartGap : 0);
  out.functions_.BeginAt(out.revision_);
  return out;
}

absl::Status Catalogue::LoadRuns(const storage::MetadataStore& store) {
  std::vector<proto::RunRecord> runs;
  TROUPE_RETURN_IF_ERROR(storage::ScanMessages<proto::RunRecord>(
      store, Table::kRuns, "",
      [&](std::string_view, proto::RunRecord run) { runs.push_back(std::move(run)); }));
  std::vector<proto::CommitStep> steps;
  TROUPE_RETURN_IF_ERROR(storage::ScanMessages<proto::CommitStep>(
      store, Table::kSteps, "",
      [&](std::string_view, proto::CommitStep step) { steps.push_back(std::move(step)); }));
  for (const auto& run : runs) {
    runs_.Apply(run.start());
    if (run.claim() == 0) continue;
    proto::ClaimRun claim;
    claim.set_run(run.start().run());
    claim.set_gateway(run.gateway());
    claim.set_claim(run.claim());
    runs_.Apply(claim);
  }
  for (const auto& step : steps) runs_.Apply(step);
  std::sort(runs.begin(), runs.end(),
            [](const auto& a, const auto& b) { return a.finished_unix_ns() < b.finished_unix_ns(); });
  for (const auto& run : runs) {
    if (run.state() == proto::RUN_RUNNING || run.state() == proto::RUN_PENDING) continue;
    proto::FinishRun finish;
    finish.set_run(run.start().run());
    finish.set_state(run.state());
    finish.set_message(run.message());
    finish.set_code(run.code());
    *finish.mutable_outputs() = run.outputs();
    finish.set_unix_ns(run.finished_unix_ns());
    runs_.Apply(finish);
  }
  return absl::OkStatus();
}

Batch Catalogue::DrainBatch(const std::string& node, bool drain) {
  const auto key = absl::StrCat(kDrained, node);
  Batch batch;
  drain ? batch.Put(Table::kSettings, key, "by an operator") : batch.Delete(Table::kSettings, key);
  return batch;
}

Batch Catalogue::BirthBatch() const {
  Batch batch;
  batch.Put(Table::kSettings, kCluster, cluster_);
  return batch;
}

Batch Catalogue::HomeBatch(const std::string& digest, const std::string& node) {
  proto::PlacementRecord home;
  home.set_model_digest(digest);
  home.add_nodes(node);
  Batch batch;
  batch.Put(Table::kSettings, absl::StrCat(kHome, digest), home);
  return batch;
}

Batch Catalogue::NoHomeBatch(const std::vector<std::string>& digests) {
  Batch batch;
  for (const auto& digest : digests) batch.Delete(Table::kSettings, absl::StrCat(kHome, digest));
  return batch;
}

Batch Catalogue::EpochBatch(std::uint64_t epoch) const {
  // Members keep the cluster's id: it is durable before the first of them is told.
  Batch batch = BirthBatch();
  batch.Put(Table::kSettings, kEpoch, absl::StrCat(epoch));
  return batch;
}

Batch Catalogue::BatchFor(const proto::DeployFunction& command) const {
  const auto& record = command.record();
  return WithRevision({}, Table::kFunctions, KeyOf(record.key().name(), record.key().version()), record,
                      NextRevision());
}

Batch Catalogue::BatchFor(const proto::RemoveFunction& command) const {
  return Removal(Table::kFunctions, KeyOf(command.key().name(), command.key().version()), NextRevision());
}

Batch Catalogue::BatchFor(const proto::SetFunctionLoaded& command) const {
  auto record = *functions_.table().Find(command.key());
  record.set_loaded(command.loaded());
  record.clear_problem();  // found anew at each start
  return WithRevision({}, Table::kFunctions, KeyOf(record.key().name(), record.key().version()), record,
                      NextRevision());
}

Batch Catalogue::BatchFor(const proto::WorkflowRecord& command) const {
  return WithRevision({}, Table::kWorkflows, KeyOf(command.spec().name(), command.spec().version()), command,
                      NextRevision());
}

Batch Catalogue::BatchFor(const proto::RemoveWorkflow& command) const {
  return Removal(Table::kWorkflows, KeyOf(command.name(), command.version()), NextRevision());
}

Batch Catalogue::BatchFor(const proto::CreateApiKey& command) const {
  Batch batch;
  batch.Put(Table::kSettings, absl::StrCat(kApiKey, command.key().name()), command.key());
  batch.Put(Table::kSettings, kRevision, absl::StrCat(NextRevision()));
  return batch;
}

Batch Catalogue::BatchFor(const proto::RevokeApiKey& command) const {
  return Removal(Table::kSettings, absl::StrCat(kApiKey, command.name()), NextRevision());
}

Batch Catalogue::BatchFor(const proto::StartRun& command) const {
  proto::RunRecord record;
  *record.mutable_start() = command;
  record.set_state(proto::RUN_RUNNING);
  record.set_gateway(command.gateway());
  Batch batch;
  batch.Put(Table::kRuns, command.run(), record);
  return batch;
}

Batch Catalogue::NoStartBatch(const std::set<std::string>& runs) {
  Batch batch;
  for (const auto& run : runs) batch.Delete(Table::kRuns, run);
  return batch;
}

// The run as it is, with another owner; its steps have records of their own.
Batch Catalogue::BatchFor(const proto::ClaimRun& command) const {
  auto record = *runs_.Find(command.run());
  record.clear_steps();
  record.set_gateway(command.gateway());
  record.set_claim(command.claim());
  if (MayReopen(record)) RunLog::Reopen(record);
  Batch batch;
  batch.Put(Table::kRuns, command.run(), record);
  return batch;
}

Batch Catalogue::BatchFor(const proto::CommitStep& command) const {
  Batch batch;
  batch.Put(Table::kSteps, KeyOf(command.run(), command.step()), command);
  return batch;
}

Batch Catalogue::BatchFor(const proto::FinishRun& command) const {
  proto::RunRecord record;
  const auto* known = runs_.Find(command.run());
  if (known != nullptr) {
    *record.mutable_start() = known->start();
    record.set_gateway(known->gateway());
    record.set_claim(known->claim());
  }
  if (known != nullptr && known->state() != proto::RUN_RUNNING) {
    // A run that has ended keeps its end on disk, as it does in memory; its steps have records of their own.
    record = *known;
    record.clear_steps();
    Batch unchanged;
    unchanged.Put(Table::kRuns, command.run(), record);
    return unchanged;
  }
  record.set_state(command.state());
  record.set_message(command.message());
  record.set_code(command.code());
  *record.mutable_outputs() = command.outputs();
  record.set_finished_unix_ns(command.unix_ns());
  Batch batch;
  batch.Put(Table::kRuns, command.run(), record);
  return batch;
}

Batch Catalogue::TakeSurplusRuns() {
  Batch batch;
  for (const auto& run : runs_.TakeSurplus()) {
    batch.Delete(Table::kRuns, run.start().run());
    for (const auto& step : run.steps()) batch.Delete(Table::kSteps, KeyOf(run.start().run(), step.step()));
  }
  return batch;
}

cluster::Digests Catalogue::Objects() const {
  cluster::Digests digests;
  for (const auto& [name, versions] : functions_.table().functions())
    for (const auto& [number, record] : versions) cluster::AddObjectsOf(record, digests);
  runs_.AddObjects(digests);
  return digests;
}

}  // namespace troupe::actors

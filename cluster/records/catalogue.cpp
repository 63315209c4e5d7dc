#include "cluster/records/catalogue.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "cluster/records/record_keys.hpp"
#include "proto/admin.pb.h"

namespace troupe::cluster {

namespace {

// Revisions that members saw but the store did not (membership changes) lie above the stored one; a manager
// that comes back begins above all of them.
constexpr std::uint64_t kRestartGap = 1'000'000'000;

std::string KeyOf(const std::string& name, const std::string& version) {
  return absl::StrCat(name, "/", version);
}

template <class Record>
Changes WithRevision(Changes changes, Table table, const std::string& key, Record record,
                     std::uint64_t revision) {
  record.set_revision(revision);
  changes.Put(table, key, record);
  changes.Put(Table::kSettings, kRevisionKey, absl::StrCat(revision));
  return changes;
}

Changes Removal(Table table, const std::string& key, std::uint64_t revision) {
  Changes changes;
  changes.Delete(table, key);
  changes.Put(Table::kSettings, kRevisionKey, absl::StrCat(revision));
  return changes;
}

// What is on the disk is not trusted: such a record could never be applied.
absl::Status CheckVersion(const char* what, const std::string& name, const std::string& version) {
  if (VersionNumber(version) != 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the store has ", what, " '", name, "' with the version '", version,
                                          "', which is none; restore a backup (troupe store check)"));
}

// In the order in which they were made: the registries want growing revisions.
template <class Record>
void SortByRevision(std::vector<Record>& records) {
  std::sort(records.begin(), records.end(),
            [](const Record& a, const Record& b) { return a.revision() < b.revision(); });
}

}  // namespace

absl::StatusOr<Catalogue> Catalogue::Of(CatalogueRecords records, const std::string& cluster_id) {
  Catalogue out;
  const bool is_new = !records.cluster.has_value();
  out.cluster_ = is_new ? cluster_id : *records.cluster;
  out.last_epoch_ = records.last_epoch;
  SortByRevision(records.functions);
  for (auto& record : records.functions) {
    TROUPE_RETURN_IF_ERROR(CheckVersion("function", record.key().name(), record.key().version()));
    proto::DeployFunction command;
    *command.mutable_record() = record;
    out.functions_.Apply(command, ++out.revision_);
  }
  SortByRevision(records.workflows);
  for (const auto& record : records.workflows) {
    TROUPE_RETURN_IF_ERROR(CheckVersion("workflow", record.spec().name(), record.spec().version()));
    out.workflows_.Apply(record, ++out.revision_);
  }
  for (const auto& home : records.homes)
    if (home.nodes_size() == 1) out.homes_[home.model_digest()] = home.nodes(0);
  out.drained_ = {records.drained.begin(), records.drained.end()};
  for (auto& key : records.keys) {
    proto::CreateApiKey command;
    *command.mutable_key() = std::move(key);
    out.keys_.Apply(command);
  }
  out.TakeRuns(std::move(records.runs), records.steps);
  out.revision_ = std::max(out.revision_, records.revision) + (is_new ? 0 : kRestartGap);
  out.functions_.BeginAt(out.revision_);
  return out;
}

void Catalogue::TakeRuns(std::vector<proto::RunRecord> runs, const std::vector<proto::CommitStep>& steps) {
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
}

Changes Catalogue::DrainChanges(const std::string& node, bool drain) {
  const auto key = absl::StrCat(kDrainedKey, node);
  Changes changes;
  drain ? changes.Put(Table::kSettings, key, "by an operator") : changes.Delete(Table::kSettings, key);
  return changes;
}

Changes Catalogue::BirthChanges() const {
  Changes changes;
  changes.Put(Table::kSettings, kClusterKey, cluster_);
  return changes;
}

Changes Catalogue::HomeChanges(const std::string& digest, const std::string& node) {
  proto::PlacementRecord home;
  home.set_model_digest(digest);
  home.add_nodes(node);
  Changes changes;
  changes.Put(Table::kSettings, absl::StrCat(kHomeKey, digest), home);
  return changes;
}

Changes Catalogue::NoHomeChanges(const std::vector<std::string>& digests) {
  Changes changes;
  for (const auto& digest : digests) changes.Delete(Table::kSettings, absl::StrCat(kHomeKey, digest));
  return changes;
}

Changes Catalogue::EpochChanges(std::uint64_t epoch) const {
  // Members keep the cluster's id: it is durable before the first of them is told.
  Changes changes = BirthChanges();
  changes.Put(Table::kSettings, kEpochKey, absl::StrCat(epoch));
  return changes;
}

Changes Catalogue::ChangesFor(const proto::DeployFunction& command) const {
  const auto& record = command.record();
  return WithRevision({}, Table::kFunctions, KeyOf(record.key().name(), record.key().version()), record,
                      NextRevision());
}

Changes Catalogue::ChangesFor(const proto::RemoveFunction& command) const {
  return Removal(Table::kFunctions, KeyOf(command.key().name(), command.key().version()), NextRevision());
}

Changes Catalogue::ChangesFor(const proto::SetFunctionLoaded& command) const {
  auto record = *functions_.table().Find(command.key());
  record.set_loaded(command.loaded());
  record.clear_problem();  // found anew at each start
  return WithRevision({}, Table::kFunctions, KeyOf(record.key().name(), record.key().version()), record,
                      NextRevision());
}

Changes Catalogue::ChangesFor(const proto::WorkflowRecord& command) const {
  return WithRevision({}, Table::kWorkflows, KeyOf(command.spec().name(), command.spec().version()), command,
                      NextRevision());
}

Changes Catalogue::ChangesFor(const proto::RemoveWorkflow& command) const {
  return Removal(Table::kWorkflows, KeyOf(command.name(), command.version()), NextRevision());
}

Changes Catalogue::ChangesFor(const proto::CreateApiKey& command) const {
  Changes changes;
  changes.Put(Table::kSettings, absl::StrCat(kApiKeyKey, command.key().name()), command.key());
  changes.Put(Table::kSettings, kRevisionKey, absl::StrCat(NextRevision()));
  return changes;
}

Changes Catalogue::ChangesFor(const proto::RevokeApiKey& command) const {
  return Removal(Table::kSettings, absl::StrCat(kApiKeyKey, command.name()), NextRevision());
}

Changes Catalogue::ChangesFor(const proto::StartRun& command) const {
  proto::RunRecord record;
  *record.mutable_start() = command;
  record.set_state(proto::RUN_RUNNING);
  record.set_gateway(command.gateway());
  Changes changes;
  changes.Put(Table::kRuns, command.run(), record);
  return changes;
}

Changes Catalogue::NoStartChanges(const std::set<std::string>& runs) {
  Changes changes;
  for (const auto& run : runs) changes.Delete(Table::kRuns, run);
  return changes;
}

// The run as it is, with another owner; its steps have records of their own.
Changes Catalogue::ChangesFor(const proto::ClaimRun& command) const {
  auto record = *runs_.Find(command.run());
  record.clear_steps();
  record.set_gateway(command.gateway());
  record.set_claim(command.claim());
  if (MayReopen(record)) RunLog::Reopen(record);
  Changes changes;
  changes.Put(Table::kRuns, command.run(), record);
  return changes;
}

Changes Catalogue::ChangesFor(const proto::CommitStep& command) const {
  Changes changes;
  changes.Put(Table::kSteps, KeyOf(command.run(), command.step()), command);
  return changes;
}

Changes Catalogue::ChangesFor(const proto::FinishRun& command) const {
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
    Changes unchanged;
    unchanged.Put(Table::kRuns, command.run(), record);
    return unchanged;
  }
  record.set_state(command.state());
  record.set_message(command.message());
  record.set_code(command.code());
  *record.mutable_outputs() = command.outputs();
  record.set_finished_unix_ns(command.unix_ns());
  Changes changes;
  changes.Put(Table::kRuns, command.run(), record);
  return changes;
}

Changes Catalogue::TakeSurplusRuns() {
  Changes changes;
  for (const auto& run : runs_.TakeSurplus()) {
    changes.Delete(Table::kRuns, run.start().run());
    for (const auto& step : run.steps()) changes.Delete(Table::kSteps, KeyOf(run.start().run(), step.step()));
  }
  return changes;
}

Digests Catalogue::Objects() const {
  Digests digests;
  for (const auto& [name, versions] : functions_.table().functions())
    for (const auto& [number, record] : versions) AddObjectsOf(record, digests);
  runs_.AddObjects(digests);
  return digests;
}

}  // namespace troupe::cluster

#include "cluster/records/catalogue.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "proto/admin.pb.h"

namespace troupe::cluster {

namespace {

// Revisions that members saw but the store did not (membership changes) lie above the stored one; a manager
// that comes back begins above all of them.
constexpr std::uint64_t kRestartGap = 1'000'000'000;
// What `troupe experiment scale` measures a manager with.
constexpr RegistryLimits kLimits = {.max_functions = 1'000'000};

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
  out.functions_ = FunctionRegistry(kLimits);
  const bool is_new = !records.cluster.has_value();
  out.cluster_ = is_new ? cluster_id : *records.cluster;
  out.last_epoch_ = records.last_epoch;
  SortByRevision(records.functions);
  for (auto& record : records.functions) {
    TROUPE_RETURN_IF_ERROR(CheckVersion("function", record.key().name(), record.key().version()));
    proto::DeployFunction command;
    *command.mutable_record() = std::move(record);
    out.functions_.Apply(command, ++out.revision_);
    out.functions_.FoldCold();
  }
  SortByRevision(records.workflows);
  for (const auto& record : records.workflows) {
    TROUPE_RETURN_IF_ERROR(CheckVersion("workflow", record.spec().name(), record.spec().version()));
    out.workflows_.Apply(record, ++out.revision_);
  }
  auto& homes = out.nodes_.homes;
  homes.last_term = records.last_term;
  for (const auto& home : records.homes) {
    if (home.nodes_size() != 1) continue;
    homes.last_term = std::max(homes.last_term, home.term());
    homes.by_model[home.model_digest()] = home;
  }
  out.nodes_.drained = {records.drained.begin(), records.drained.end()};
  for (auto& key : records.keys) {
    proto::CreateApiKey command;
    *command.mutable_key() = std::move(key);
    out.keys_.Apply(command);
  }
  for (const auto& amount : records.usage) out.usage_.Load(amount);
  for (const auto& ledger : records.ledgers) out.usage_.Load(ledger);
  for (auto& profile : records.profiles) out.profiles_.Load(std::move(profile), ++out.revision_);
  for (const auto& experiment : records.experiments) out.profiles_.Apply(experiment);
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

Digests Catalogue::Objects() const {
  Digests digests;
  functions_.table().ForEach([&](const proto::FunctionRecord& record) { AddObjectsOf(record, digests); });
  runs_.AddObjects(digests);
  return digests;
}

}  // namespace troupe::cluster

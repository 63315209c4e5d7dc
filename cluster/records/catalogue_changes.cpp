#include "cluster/records/catalogue_changes.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/records/record_keys.hpp"

namespace troupe::cluster {

namespace {

// The revision that the next command gets.
std::uint64_t NextRevision(const Catalogue& catalogue) {
  return catalogue.revision() + 1;
}

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

// Of a command that changes a function's record (SetIn in function_registry.hpp).
template <class Command>
Changes ChangeOfFunction(const Catalogue& catalogue, const Command& command) {
  auto record = *catalogue.functions().table().Find(command.key());
  SetIn(record, command);
  record.clear_problem();  // found anew at each start
  return WithRevision({}, Table::kFunctions, KeyOf(record.key().name(), record.key().version()), record,
                      NextRevision(catalogue));
}

}  // namespace

Changes DrainChanges(const std::string& node, bool drain) {
  const auto key = absl::StrCat(kDrainedKey, node);
  Changes changes;
  drain ? changes.Put(Table::kSettings, key, "by an operator") : changes.Delete(Table::kSettings, key);
  return changes;
}

Changes BirthChanges(const Catalogue& catalogue) {
  Changes changes;
  changes.Put(Table::kSettings, kClusterKey, catalogue.cluster());
  return changes;
}

Changes HomeChanges(const std::string& digest, const std::string& node, std::uint64_t term,
                    const std::set<std::string>& in_step, bool home_is_empty) {
  proto::PlacementRecord home;
  home.set_model_digest(digest);
  home.add_nodes(node);
  home.set_term(term);
  home.set_home_is_empty(home_is_empty);
  for (const auto& other : in_step) home.add_in_step(other);
  Changes changes;
  changes.Put(Table::kSettings, absl::StrCat(kHomeKey, digest), home);
  return changes;
}

Changes NoHomeChanges(const std::vector<std::string>& digests, std::uint64_t last_term) {
  Changes changes;
  changes.Put(Table::kSettings, kTermKey, absl::StrCat(last_term));
  for (const auto& digest : digests) changes.Delete(Table::kSettings, absl::StrCat(kHomeKey, digest));
  return changes;
}

Changes EpochChanges(const Catalogue& catalogue, std::uint64_t epoch) {
  // Members keep the cluster's id: it is durable before the first of them is told.
  Changes changes = BirthChanges(catalogue);
  changes.Put(Table::kSettings, kEpochKey, absl::StrCat(epoch));
  return changes;
}

Changes ChangesFor(const Catalogue& catalogue, const proto::DeployFunction& command) {
  const auto& record = command.record();
  return WithRevision({}, Table::kFunctions, KeyOf(record.key().name(), record.key().version()), record,
                      NextRevision(catalogue));
}

Changes ChangesFor(const Catalogue& catalogue, const proto::RemoveFunction& command) {
  return Removal(Table::kFunctions, KeyOf(command.key().name(), command.key().version()),
                 NextRevision(catalogue));
}

Changes ChangesFor(const Catalogue& catalogue, const proto::SetFunctionLoaded& command) {
  return ChangeOfFunction(catalogue, command);
}

Changes ChangesFor(const Catalogue& catalogue, const proto::SetVersionShare& command) {
  return ChangeOfFunction(catalogue, command);
}

Changes ChangesFor(const Catalogue& catalogue, const proto::SetFunctionSharing& command) {
  return ChangeOfFunction(catalogue, command);
}

Changes ChangesFor(const Catalogue& catalogue, const proto::SetFunctionPlaces& command) {
  return ChangeOfFunction(catalogue, command);
}

Changes ChangesFor(const Catalogue& catalogue, const proto::WorkflowRecord& command) {
  return WithRevision({}, Table::kWorkflows, KeyOf(command.spec().name(), command.spec().version()), command,
                      NextRevision(catalogue));
}

Changes ChangesFor(const Catalogue& catalogue, const proto::RemoveWorkflow& command) {
  return Removal(Table::kWorkflows, KeyOf(command.name(), command.version()), NextRevision(catalogue));
}

Changes ChangesFor(const Catalogue& catalogue, const proto::CreateApiKey& command) {
  Changes changes;
  changes.Put(Table::kSettings, absl::StrCat(kApiKeyKey, command.key().name()), command.key());
  changes.Put(Table::kSettings, kRevisionKey, absl::StrCat(NextRevision(catalogue)));
  return changes;
}

Changes ChangesFor(const Catalogue& catalogue, const proto::RevokeApiKey& command) {
  return Removal(Table::kSettings, absl::StrCat(kApiKeyKey, command.name()), NextRevision(catalogue));
}

Changes ChangesFor(const Catalogue& catalogue, const proto::ProfilingExperiment& experiment) {
  Changes changes;
  changes.Put(Table::kSettings, absl::StrCat(kExperimentKey, experiment.number()), experiment);
  for (const auto number : catalogue.profiles().SurplusBeside(experiment))
    changes.Delete(Table::kSettings, absl::StrCat(kExperimentKey, number));
  return changes;
}

Changes ChangesFor(const Catalogue& catalogue, const proto::KeepProfile& command) {
  Changes changes;
  if (command.has_experiment()) changes = ChangesFor(catalogue, command.experiment());
  if (!command.has_profile()) return changes;
  auto profile = command.profile();
  profile.clear_revision();  // of one life of the manager
  changes.Put(Table::kSettings, absl::StrCat(kProfileKey, ProfileRegistry::NameOf(profile)), profile);
  if (const auto* oldest = catalogue.profiles().GivesWayTo(profile, catalogue.functions().table()))
    changes.Delete(Table::kSettings, absl::StrCat(kProfileKey, ProfileRegistry::NameOf(*oldest)));
  changes.Put(Table::kSettings, kRevisionKey, absl::StrCat(NextRevision(catalogue)));
  return changes;
}

Changes ChangesFor(const Catalogue& catalogue, const proto::DropProfile& command) {
  return Removal(Table::kSettings, absl::StrCat(kProfileKey, ProfileRegistry::NameOf(command.profile())),
                 NextRevision(catalogue));
}

Changes ChangesFor(const Catalogue&, const proto::StartRun& command) {
  proto::RunRecord record;
  *record.mutable_start() = command;
  record.set_state(proto::RUN_RUNNING);
  record.set_gateway(command.gateway());
  Changes changes;
  changes.Put(Table::kRuns, command.run(), record);
  return changes;
}

Changes NoStartChanges(const std::set<std::string>& runs) {
  Changes changes;
  for (const auto& run : runs) changes.Delete(Table::kRuns, run);
  return changes;
}

// The run as it is, with another owner; its steps have records of their own.
Changes ChangesFor(const Catalogue& catalogue, const proto::ClaimRun& command) {
  auto record = *catalogue.runs().Find(command.run());
  record.clear_steps();
  record.set_gateway(command.gateway());
  record.set_claim(command.claim());
  if (MayReopen(record)) RunLog::Reopen(record);
  Changes changes;
  changes.Put(Table::kRuns, command.run(), record);
  return changes;
}

Changes ChangesFor(const Catalogue&, const proto::CommitStep& command) {
  Changes changes;
  changes.Put(Table::kSteps, KeyOf(command.run(), command.step()), command);
  return changes;
}

Changes ChangesFor(const Catalogue& catalogue, const proto::FinishRun& command) {
  proto::RunRecord record;
  const auto* known = catalogue.runs().Find(command.run());
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

Changes RemovalOf(const std::vector<proto::RunRecord>& runs) {
  Changes changes;
  for (const auto& run : runs) {
    changes.Delete(Table::kRuns, run.start().run());
    for (const auto& step : run.steps()) changes.Delete(Table::kSteps, KeyOf(run.start().run(), step.step()));
  }
  return changes;
}

}  // namespace troupe::cluster

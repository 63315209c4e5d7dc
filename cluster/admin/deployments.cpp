#include "cluster/admin/deployments.hpp"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "cluster/admin/outdated_calls.hpp"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"
#include "proto/gpu_sharing.hpp"
#include "proto/precision.hpp"

namespace troupe::cluster {

void Deployments::Fail(Ask ask, const absl::Status& status) {
  parts_.admin.Reply(ask, Failure<proto::AdminReply>(status));
}

void Deployments::On(const Started& event) {
  for (const auto& lacking : event.lacking) {
    auto problem =
        absl::StrCat("cannot be brought to nodes: the store lacks its ", absl::StrJoin(lacking.objects, ", "),
                     "; deploy it again, or restore a backup ('troupe store restore')");
    parts_.out.Tell("manager", "function-broken", absl::StrCat(Describe(lacking.key), " ", problem));
    parts_.catalogue.NoteProblem(lacking.key, std::move(problem));
  }
}

void Deployments::Deploy(Ask ask, const proto::DeployRequest& wish) {
  if (const auto status = ValidateName("function", wish.name()); !status.ok()) return Fail(ask, status);
  // What no model could allow is refused before the file is imported.
  if (const auto fault = proto::FaultIn(wish.sharing()))
    return Fail(ask, absl::InvalidArgumentError(fault->why));
  const auto bounds = parts_.staged.BoundsFor(wish);
  importing_.emplace(ask, Importing{wish, bounds});
  parts_.out.Add(
      ImportModel{ask, wish.onnx_digest(), wish.client(), proto::PackedIn(wish.precision()), {bounds}});
}

proto::FunctionRecord Deployments::Complete(proto::FunctionRecord record,
                                            const proto::DeployRequest& wish) const {
  const auto& default_slo = parts_.settings.default_slo;
  record.mutable_key()->set_name(wish.name());
  record.mutable_key()->set_version(wish.version());
  record.set_tenant(wish.tenant());
  record.set_isolation(wish.isolation());
  record.set_precision(wish.precision());
  if (wish.has_sharing()) *record.mutable_sharing() = proto::Declarations(wish.sharing());
  record.set_run_limit_ns(wish.run_limit_ns());
  *record.mutable_slo() = wish.has_slo() ? wish.slo() : default_slo;
  // A percentile alone is one of the default deadline.
  if (record.slo().percentile() > 0 && record.slo().deadline_ns() == 0)
    record.mutable_slo()->set_deadline_ns(default_slo.deadline_ns());
  *record.mutable_state() = wish.state();
  record.set_state_replicas(wish.state_replicas());
  if (wish.stage_memory() > 0) record.mutable_stage()->set_memory(wish.stage_memory());
  record.set_loaded(true);
  record.set_deployed_unix_ns(parts_.out.unix_now());
  return record;
}

void Deployments::On(ModelImported& event) {
  if (parts_.staged.Imported(event)) return;
  const auto found = importing_.extract(event.ask);
  if (found.empty()) return;
  const auto& importing = found.mapped();
  if (!event.function.ok()) return Fail(event.ask, event.function.status());
  if (event.function->stage().count() > 1)
    return parts_.staged.Begin(event.ask, importing.wish, importing.bounds, *std::move(event.function));
  Deploying change{.ask = event.ask};
  *change.command.mutable_record() = Complete(*std::move(event.function), importing.wish);
  parts_.mutations.Add(std::move(change));
}

absl::Status Deployments::Validate(Deploying& change) const {
  const auto& catalogue = parts_.catalogue;
  if (catalogue.workflows().HasName(change.command.record().key().name()))
    return absl::AlreadyExistsError("a workflow has this name; choose another");
  TROUPE_RETURN_IF_ERROR(CheckNoStage(change.command.record().key().name()));
  TROUPE_RETURN_IF_ERROR(PlacementTable::CheckFits(change.command.record(), parts_.members.table()));
  TROUPE_ASSIGN_OR_RETURN(change.command, catalogue.functions().ValidateDeploy(change.command));
  parts_.sharing.FillIn(*change.command.mutable_record());
  return absl::OkStatus();
}

void Deployments::Answer(Deploying& change, const absl::Status& status) {
  if (!status.ok()) return Fail(change.ask, status);
  auto& record = *change.command.mutable_record();
  parts_.out.Tell("manager", "function-deployed", Describe(record.key()));
  parts_.copies.AwaitAdoption({change.ask, std::move(record)});
}

bool Deployments::IsPassing(const absl::Status& status) {
  return status.ok() || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

void Deployments::Adopted(const Deployed& deployed, const absl::Status& status) {
  const auto& record = deployed.record;
  if (record.stage().count() > 1) return parts_.staged.Adopted(deployed, status);
  if (IsPassing(status)) {
    proto::AdminReply reply;
    AddFunction(record, parts_.State(), reply);
    const auto& catalogue = parts_.catalogue;
    SetRemarks({std::string(status.message()), VersionChanges::WhyUnused(record, catalogue),
                OutdatedCallsOf(record.key().name(), record.key().version(), catalogue)},
               reply);
    return parts_.admin.Reply(deployed.ask, std::move(reply));
  }
  // No node can serve it: it is taken back, and the developer is told why.
  TakingBack change{.ask = deployed.ask, .deployed_unix_ns = record.deployed_unix_ns(), .why = status};
  *change.command.mutable_key() = record.key();
  change.command.set_unix_ns(parts_.out.unix_now());
  parts_.mutations.Add(std::move(change));
}

// Unless it was removed meanwhile, or deployed anew.
absl::Status Deployments::Validate(const TakingBack& change) const {
  const auto* known = parts_.catalogue.functions().table().Find(change.command.key());
  return known != nullptr && known->deployed_unix_ns() == change.deployed_unix_ns
             ? absl::OkStatus()
             : absl::NotFoundError("it is not there any more");
}

void Deployments::Answer(const TakingBack& change, const absl::Status&) {
  Fail(change.ask, change.why);
}

// Of the versions of a name either all are stages of models, or none is.
absl::Status Deployments::CheckNoStage(const std::string& name) const {
  const auto* versions = parts_.catalogue.functions().table().VersionsOf(name);
  if (versions == nullptr || versions->begin()->second.stage().count() == 0) return absl::OkStatus();
  const auto& stage = versions->begin()->second.stage();
  return absl::FailedPreconditionError(absl::StrCat("function '", name, "' is stage ", stage.number(),
                                                    " of '", stage.workflow(), "'; name '", stage.workflow(),
                                                    "' instead"));
}

absl::Status Deployments::CheckNoWorkflow(const std::string& name) const {
  const auto* workflow = parts_.catalogue.workflows().Find(name, "");
  if (workflow == nullptr) return absl::OkStatus();
  std::set<std::string> called;
  for (const auto& step : workflow->spec().steps())
    called.insert(step.function().empty() ? step.workflow() : step.function());
  return absl::FailedPreconditionError(
      absl::StrCat("'", name,
                   "' is a workflow, which is served while it is submitted and needs no loading; load or "
                   "unload what it calls: ",
                   absl::StrJoin(called, ", ")));
}

void Deployments::Remove(Ask ask, const proto::RemoveRequest& wish) {
  if (!StagesOf(parts_.catalogue.workflows(), wish.key()).empty()) {
    proto::RemoveWorkflow all;
    all.set_name(wish.key().name());
    all.set_version(wish.key().version());
    return parts_.workflows.Remove(ask, all);
  }
  Removing change{.ask = ask};
  *change.command.mutable_key() = wish.key();
  change.command.set_unix_ns(parts_.out.unix_now());
  parts_.mutations.Add(std::move(change));
}

absl::Status Deployments::Validate(Removing& change) const {
  const auto& functions = parts_.catalogue.functions();
  TROUPE_ASSIGN_OR_RETURN(change.command, functions.ValidateRemove(change.command));
  const auto& key = change.command.key();
  TROUPE_RETURN_IF_ERROR(CheckNoStage(key.name()));
  *change.reply.add_functions()->mutable_record() = *functions.table().Find(key);
  for (const auto& [number, record] : *functions.table().VersionsOf(key.name()))
    if (record.key().version() != key.version()) *change.reply.add_functions()->mutable_record() = record;
  return absl::OkStatus();
}

void Deployments::Answer(Removing& change, const absl::Status& status) {
  if (!status.ok()) return Fail(change.ask, status);
  parts_.out.Tell("manager", "function-removed", Describe(change.command.key()));
  parts_.admin.Reply(change.ask, std::move(change.reply));
}

void Deployments::SetLoaded(Ask ask, const proto::LoadRequest& wish) {
  parts_.mutations.Add(Loading{.ask = ask, .wish = wish});
}

absl::Status Deployments::Validate(Loading& change) const {
  const auto& key = change.wish.key();
  proto::SetFunctionLoaded one;
  *one.mutable_key() = key;
  one.set_loaded(change.wish.load());
  one.set_unix_ns(parts_.out.unix_now());
  const auto& functions = parts_.catalogue.functions();
  for (auto& stage : StagesOf(parts_.catalogue.workflows(), key)) {
    *one.mutable_key() = std::move(stage);
    TROUPE_ASSIGN_OR_RETURN(change.commands.emplace_back(), functions.ValidateLoaded(one));
  }
  if (!change.commands.empty()) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(CheckNoWorkflow(key.name()));
  TROUPE_ASSIGN_OR_RETURN(one, functions.ValidateLoaded(one));
  if (!key.version().empty()) {
    change.commands.push_back(std::move(one));
    return absl::OkStatus();
  }
  for (const auto& [number, record] : *functions.table().VersionsOf(one.key().name())) {
    *one.mutable_key() = record.key();
    change.commands.push_back(one);
  }
  return absl::OkStatus();
}

void Deployments::Answer(const Loading& change, const absl::Status& status) {
  if (status.ok())
    parts_.out.Tell("manager", change.wish.load() ? "function-loaded" : "function-unloaded",
                    Describe(change.wish.key()));
  Fail(change.ask, status);
}

}  // namespace troupe::cluster

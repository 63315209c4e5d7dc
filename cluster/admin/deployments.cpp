#include "cluster/admin/deployments.hpp"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"

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
  importing_.emplace(ask, wish);
  parts_.out.Add(ImportModel{ask, wish.onnx_digest(), wish.client()});
}

proto::FunctionRecord Deployments::Complete(proto::FunctionRecord record,
                                            const proto::DeployRequest& wish) const {
  const auto& default_slo = parts_.settings.default_slo;
  record.mutable_key()->set_name(wish.name());
  record.mutable_key()->set_version(wish.version());
  record.set_tenant(wish.tenant());
  record.set_isolation(wish.isolation());
  record.set_precision(wish.precision());
  record.set_sm_partition(wish.sm_partition());
  record.set_run_limit_ns(wish.run_limit_ns());
  *record.mutable_slo() = wish.has_slo() ? wish.slo() : default_slo;
  // A percentile alone is one of the default deadline.
  if (record.slo().percentile() > 0 && record.slo().deadline_ns() == 0)
    record.mutable_slo()->set_deadline_ns(default_slo.deadline_ns());
  *record.mutable_state() = wish.state();
  record.set_loaded(true);
  record.set_deployed_unix_ns(parts_.out.unix_now());
  return record;
}

void Deployments::On(ModelImported& event) {
  const auto importing = importing_.extract(event.ask);
  if (importing.empty()) return;
  if (!event.function.ok()) return Fail(event.ask, event.function.status());
  auto command = std::make_shared<proto::DeployFunction>();
  *command->mutable_record() = Complete(*std::move(event.function), importing.mapped());
  parts_.Mutate<proto::DeployFunction>(
      command,
      [this, command]() -> absl::Status {
        const auto& catalogue = parts_.catalogue;
        if (catalogue.workflows().HasName(command->record().key().name()))
          return absl::AlreadyExistsError("a workflow has this name; choose another");
        TROUPE_RETURN_IF_ERROR(PlacementTable::CheckFits(command->record(), parts_.members.table()));
        TROUPE_ASSIGN_OR_RETURN(*command, catalogue.functions().ValidateDeploy(*command));
        return absl::OkStatus();
      },
      [this, ask = event.ask, command](const absl::Status& status) {
        if (!status.ok()) return Fail(ask, status);
        AwaitAdoption(ask, command->record());
      });
}

void Deployments::AwaitAdoption(Ask ask, const proto::FunctionRecord& record) {
  parts_.out.Tell("manager", "function-deployed", Describe(record.key()));
  parts_.copies.AwaitAdoption(record.model_digest(), [this, ask, record](const absl::Status& status) {
    Adopted(ask, record, status);
  });
}

void Deployments::Adopted(Ask ask, const proto::FunctionRecord& record, const absl::Status& status) {
  if (status.ok() || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
      absl::IsResourceExhausted(status))
    return parts_.admin.Reply(ask, AnswerFunctions({&record}, parts_.State(), status));
  // No node can serve it: it is taken back, and the developer is told why.
  auto removal = std::make_shared<proto::RemoveFunction>();
  *removal->mutable_key() = record.key();
  removal->set_unix_ns(parts_.out.unix_now());
  // Unless it was removed meanwhile, or deployed anew.
  const auto still_there = [this, record] {
    const auto* known = parts_.catalogue.functions().table().Find(record.key());
    return known != nullptr && known->deployed_unix_ns() == record.deployed_unix_ns()
               ? absl::OkStatus()
               : absl::NotFoundError("it is not there any more");
  };
  parts_.Mutate<proto::RemoveFunction>(removal, still_there,
                                       [this, ask, status](const absl::Status&) { Fail(ask, status); });
}

void Deployments::Remove(Ask ask, const proto::RemoveRequest& wish) {
  auto command = std::make_shared<proto::RemoveFunction>();
  *command->mutable_key() = wish.key();
  command->set_unix_ns(parts_.out.unix_now());
  auto reply = std::make_shared<proto::AdminReply>();
  parts_.Mutate<proto::RemoveFunction>(
      command,
      [this, command, reply]() -> absl::Status {
        const auto& functions = parts_.catalogue.functions();
        TROUPE_ASSIGN_OR_RETURN(*command, functions.ValidateRemove(*command));
        const auto& key = command->key();
        *reply->add_functions()->mutable_record() = *functions.table().Find(key);
        for (const auto& [number, record] : *functions.table().VersionsOf(key.name()))
          if (record.key().version() != key.version()) *reply->add_functions()->mutable_record() = record;
        return absl::OkStatus();
      },
      [this, ask, command, reply](const absl::Status& status) {
        if (!status.ok()) return Fail(ask, status);
        parts_.out.Tell("manager", "function-removed", Describe(command->key()));
        parts_.admin.Reply(ask, std::move(*reply));
      });
}

void Deployments::SetLoaded(Ask ask, const proto::LoadRequest& wish) {
  auto commands = std::make_shared<std::vector<proto::SetFunctionLoaded>>();
  const auto prepare = [this, commands, wish]() -> absl::StatusOr<Changes> {
    proto::SetFunctionLoaded one;
    *one.mutable_key() = wish.key();
    one.set_loaded(wish.load());
    one.set_unix_ns(parts_.out.unix_now());
    const auto& functions = parts_.catalogue.functions();
    TROUPE_ASSIGN_OR_RETURN(one, functions.ValidateLoaded(one));
    if (!wish.key().version().empty()) commands->push_back(one);
    for (const auto& [number, record] : *functions.table().VersionsOf(one.key().name())) {
      if (!wish.key().version().empty()) continue;
      *one.mutable_key() = record.key();
      commands->push_back(one);
    }
    Changes changes;
    for (const auto& command : *commands) changes.Add(ChangesFor(parts_.catalogue, command));
    return changes;
  };
  const auto apply = [this, commands] {
    for (const auto& command : *commands) {
      parts_.copies.UsersChanged(parts_.catalogue.ModelOf(command));
      parts_.catalogue.Apply(command);
    }
    parts_.members.Changed();
  };
  parts_.mutations.Add({prepare, apply, [this, ask, wish](const absl::Status& status) {
                          if (status.ok())
                            parts_.out.Tell("manager", wish.load() ? "function-loaded" : "function-unloaded",
                                            Describe(wish.key()));
                          Fail(ask, status);
                        }});
}

}  // namespace troupe::cluster

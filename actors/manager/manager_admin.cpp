// The cluster manager as administrator: deployments, workflows, drains, and questions about all of it.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/manager/audit.hpp"
#include "actors/manager/cluster_manager_actor.hpp"
#include "actors/manager/mutate.hpp"
#include "actors/peers/message_rights.hpp"

namespace troupe::actors {

AdminReplyPromise ClusterManager::Admin(proto::AdminRequest& request) {
  const auto sender = Sender();
  auto change = ChangeOf(request);
  const bool has_line = change && options_.audit != nullptr;
  storage::AuditLine line;
  if (has_line) {
    line = *std::move(change);
    SetSender(request, *sender, line);  // a promise takes the sender away
    // Imports take turns by the caller that the connection names, and not by what a shell says of itself.
    if (request.has_deploy() && HasName(line)) request.mutable_deploy()->set_client(line.who);
  }
  auto promise = make_response_promise<proto::AdminReply>();
  const AdminPromise plain([promise](proto::AdminReply reply) {
    auto answered = promise;
    Deliver(answered, std::move(reply));
  });
  auto answer = has_line ? Audited(promise, std::move(line)) : plain;
  if (const auto allowed = CheckAdmin(request, *sender); !allowed.ok()) {
    answer.deliver(Failure<proto::AdminReply>(allowed));
  } else if (const auto room = has_line ? options_.audit->CanTake() : absl::OkStatus(); !room.ok()) {
    Deliver(promise, Failure<proto::AdminReply>(room));
  } else {
    Answer(std::move(answer), request);
  }
  return promise;
}

void ClusterManager::Answer(AdminPromise promise, proto::AdminRequest& request) {
  using Case = proto::AdminRequest;
  switch (request.request_case()) {
    case Case::kDeploy:
      Deploy(promise, request.deploy());
      break;
    case Case::kRemove:
      Remove(promise, request.remove());
      break;
    case Case::kLoad:
      SetLoaded(promise, request.load());
      break;
    case Case::kSubmitWorkflow:
      SubmitWorkflow(promise, request.submit_workflow());
      break;
    case Case::kRemoveWorkflow:
      RemoveWorkflow(promise, request.remove_workflow());
      break;
    case Case::kCancelRun:
      CancelRun(promise, request.cancel_run());
      break;
    case Case::kCreateKey:
      CreateKey(promise, request.create_key());
      break;
    case Case::kListKeys:
      ListKeys(promise);
      break;
    case Case::kRevokeKey:
      RevokeKey(promise, request.revoke_key());
      break;
    case Case::kDrain:
      Drain(promise, request.drain());
      break;
    case Case::kKillGpu:
      KillGpu(promise, request.kill_gpu());
      break;
    case Case::kInjectFault:
      InjectFault(promise, request.inject_fault());
      break;
    case Case::kListGpus:
      AskNodes(promise, request.list_gpus().node(), cluster::GpusOf);
      break;
    case Case::kShowImport:
      Deliver(promise, ShowImport(request.show_import()));
      break;
    case Case::kListFunctions:
      ShowFunctions(promise, {});
      break;
    case Case::kShowFunction:
      ShowFunctions(promise, request.show_function().key());
      break;
    default:
      Deliver(promise, AnswerFromState(request, {catalogue_, members_, placement_, events_, Now(this)}));
  }
}

proto::AdminReply ClusterManager::ShowImport(const proto::ShowImport& wish) const {
  proto::AdminReply reply;
  for (auto& status : repository_.Imports(wish.onnx_digest())) *reply.add_imports() = std::move(status);
  if (reply.imports().empty() && !wish.onnx_digest().empty())
    return Failure<proto::AdminReply>(absl::NotFoundError(
        absl::StrCat("no import of the file '", wish.onnx_digest().substr(0, 64),
                     "' waits or runs: it has ended, or no deployment of the file was asked for")));
  return reply;
}

void ClusterManager::Deploy(AdminPromise promise, const proto::DeployRequest& wish) {
  if (const auto status = cluster::ValidateName("function", wish.name()); !status.ok())
    return Deliver(promise, Failure<proto::AdminReply>(status));
  repository_.Import(wish.onnx_digest(), wish.client(),
                     continuations_.Make<proto::FunctionRecord>(
                         this, [this, promise, wish](absl::StatusOr<proto::FunctionRecord> imported) mutable {
                           if (!imported.ok())
                             return Deliver(promise, Failure<proto::AdminReply>(imported.status()));
                           Imported(promise, wish, std::move(*imported));
                         }));
}

void ClusterManager::Imported(AdminPromise promise, const proto::DeployRequest& wish,
                              proto::FunctionRecord record) {
  record.mutable_key()->set_name(wish.name());
  record.mutable_key()->set_version(wish.version());
  record.set_tenant(wish.tenant());
  record.set_isolation(wish.isolation());
  record.set_precision(wish.precision());
  record.set_sm_partition(wish.sm_partition());
  record.set_run_limit_ns(wish.run_limit_ns());
  *record.mutable_slo() = wish.has_slo() ? wish.slo() : options_.default_slo;
  // A percentile alone is one of the default deadline.
  if (record.slo().percentile() > 0 && record.slo().deadline_ns() == 0)
    record.mutable_slo()->set_deadline_ns(options_.default_slo.deadline_ns());
  *record.mutable_state() = wish.state();
  record.set_loaded(true);
  record.set_deployed_unix_ns(options_.unix_now());
  auto command = std::make_shared<proto::DeployFunction>();
  *command->mutable_record() = std::move(record);
  Mutate<proto::DeployFunction>(
      command,
      [this, command]() -> absl::Status {
        if (catalogue_.workflows().HasName(command->record().key().name()))
          return absl::AlreadyExistsError("a workflow has this name; choose another");
        TROUPE_RETURN_IF_ERROR(PlacementTable::CheckFits(command->record(), members_));
        TROUPE_ASSIGN_OR_RETURN(*command, catalogue_.functions().ValidateDeploy(*command));
        return absl::OkStatus();
      },
      [this, promise, command](const absl::Status& status) mutable {
        if (!status.ok()) return Deliver(promise, Failure<proto::AdminReply>(status));
        AwaitAdoption(promise, command->record());
      });
}

void ClusterManager::AwaitAdoption(AdminPromise promise, const proto::FunctionRecord& record) {
  Tell("manager", "function-deployed", cluster::Describe(record.key()));
  const auto& digest = record.model_digest();
  auto answer = [this, promise, record](const absl::Status& status) mutable {
    if (status.ok() || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
        absl::IsResourceExhausted(status))
      return Deliver(promise, AnswerFunctions(
                                  {&record}, {catalogue_, members_, placement_, events_, Now(this)}, status));
    // No node can serve it: it is taken back, and the developer is told why.
    auto removal = std::make_shared<proto::RemoveFunction>();
    *removal->mutable_key() = record.key();
    removal->set_unix_ns(options_.unix_now());
    // Unless it was removed meanwhile, or deployed anew.
    const auto still_there = [this, record] {
      const auto* known = catalogue_.functions().table().Find(record.key());
      return known != nullptr && known->deployed_unix_ns() == record.deployed_unix_ns()
                 ? absl::OkStatus()
                 : absl::NotFoundError("it is not there any more");
    };
    Mutate<proto::RemoveFunction>(removal, still_there, [promise, status](const absl::Status&) mutable {
      Deliver(promise, Failure<proto::AdminReply>(status));
    });
  };
  if (!placement_.HoldersOf(digest).empty() || !placement_.BeingAdopted(digest)) {
    answer(absl::OkStatus());
    return;
  }
  deploying_.emplace(digest, std::move(answer));
}

// Without a version the newest is meant: which one that is, is settled when the removal's turn has come, so
// that no other change comes between. The answer has the one that was removed, and then those that stay.
void ClusterManager::Remove(AdminPromise promise, const proto::RemoveRequest& wish) {
  auto command = std::make_shared<proto::RemoveFunction>();
  *command->mutable_key() = wish.key();
  command->set_unix_ns(options_.unix_now());
  auto reply = std::make_shared<proto::AdminReply>();
  Mutate<proto::RemoveFunction>(
      command,
      [this, command, reply]() -> absl::Status {
        const auto& functions = catalogue_.functions();
        TROUPE_ASSIGN_OR_RETURN(*command, functions.ValidateRemove(*command));
        const auto& key = command->key();
        *reply->add_functions()->mutable_record() = *functions.table().Find(key);
        for (const auto& [number, record] : *functions.table().VersionsOf(key.name()))
          if (record.key().version() != key.version()) *reply->add_functions()->mutable_record() = record;
        return absl::OkStatus();
      },
      [this, promise, command, reply](const absl::Status& status) mutable {
        if (!status.ok()) return Deliver(promise, Failure<proto::AdminReply>(status));
        Tell("manager", "function-removed", cluster::Describe(command->key()));
        Deliver(promise, std::move(*reply));
      });
}

// Without a version all of them are meant, in one commit.
void ClusterManager::SetLoaded(AdminPromise promise, const proto::LoadRequest& wish) {
  auto commands = std::make_shared<std::vector<proto::SetFunctionLoaded>>();
  const auto prepare = [this, commands, wish]() -> absl::StatusOr<cluster::Changes> {
    proto::SetFunctionLoaded one;
    *one.mutable_key() = wish.key();
    one.set_loaded(wish.load());
    one.set_unix_ns(options_.unix_now());
    const auto& functions = catalogue_.functions();
    TROUPE_ASSIGN_OR_RETURN(one, functions.ValidateLoaded(one));
    if (!wish.key().version().empty()) commands->push_back(one);
    for (const auto& [number, record] : *functions.table().VersionsOf(one.key().name())) {
      if (!wish.key().version().empty()) continue;
      *one.mutable_key() = record.key();
      commands->push_back(one);
    }
    cluster::Changes changes;
    for (const auto& command : *commands) changes.Add(catalogue_.ChangesFor(command));
    return changes;
  };
  const auto apply = [this, commands] {
    for (const auto& command : *commands) {
      placement_.UsersChanged(catalogue_.ModelOf(command));
      catalogue_.Apply(command);
    }
    Changed();
  };
  mutations_.Add({prepare, apply, [this, promise, wish](const absl::Status& status) mutable {
                    if (status.ok())
                      Tell("manager", wish.load() ? "function-loaded" : "function-unloaded",
                           cluster::Describe(wish.key()));
                    Deliver(promise, Failure<proto::AdminReply>(status));
                  }});
}

void ClusterManager::SubmitWorkflow(AdminPromise promise, const proto::SubmitWorkflow& wish) {
  auto command = std::make_shared<proto::WorkflowRecord>();
  Mutate<proto::WorkflowRecord>(
      command,
      [this, command, yaml = wish.yaml()]() -> absl::Status {
        TROUPE_ASSIGN_OR_RETURN(*command, cluster::ReadWorkflow(yaml, catalogue_, options_.unix_now()));
        return absl::OkStatus();
      },
      [this, promise, command](const absl::Status& status) mutable {
        auto reply = Failure<proto::AdminReply>(status);
        if (status.ok()) {
          *reply.add_workflows() = *command;
          Tell("manager", "workflow-submitted", command->spec().name());
        }
        Deliver(promise, std::move(reply));
      });
}

// As Remove: the answer has the version that was removed, and then those that stay.
void ClusterManager::RemoveWorkflow(AdminPromise promise, const proto::RemoveWorkflow& wish) {
  auto command = std::make_shared<proto::RemoveWorkflow>(wish);
  auto reply = std::make_shared<proto::AdminReply>();
  Mutate<proto::RemoveWorkflow>(
      command,
      [this, command, reply]() -> absl::Status {
        const auto* known = catalogue_.workflows().Find(command->name(), command->version());
        if (known == nullptr)
          return absl::NotFoundError(absl::StrCat("there is no workflow '", command->name(), "'"));
        command->set_version(known->spec().version());
        *reply->add_workflows() = *known;
        for (const auto& [number, record] : catalogue_.workflows().workflows().at(command->name()))
          if (record.spec().version() != command->version()) *reply->add_workflows() = record;
        return absl::OkStatus();
      },
      [this, promise, command, reply](const absl::Status& status) mutable {
        if (!status.ok()) return Deliver(promise, Failure<proto::AdminReply>(status));
        Tell("manager", "workflow-removed", command->name());
        Deliver(promise, std::move(*reply));
      });
}

void ClusterManager::CancelRun(AdminPromise promise, const proto::CancelRun& wish) {
  proto::FinishRun command;
  command.set_run(wish.run());
  command.set_state(proto::RUN_CANCELLED);
  command.set_message("cancelled by an operator");
  command.set_claim(kAnyClaim);
  EndRun(command, [this, promise, run = wish.run()](absl::Status status) mutable {
    const auto* known = catalogue_.runs().Find(run);
    if (status.ok() && known != nullptr && known->state() != proto::RUN_CANCELLED)
      status = absl::FailedPreconditionError(absl::StrCat("run '", run, "' has ended already"));
    // Durable first: what is told of now stays cancelled, whatever dies next. Its calls end at once.
    if (const auto actor = run_links_.Find(run); status.ok() && actor) send(actor, proto::CancelInfer());
    Deliver(promise, Failure<proto::AdminReply>(status));
  });
}

void ClusterManager::Drain(AdminPromise promise, const proto::DrainNode& wish) {
  auto status = members_.SetDraining(wish.name(), wish.drain());
  if (status.ok() && !links_.Node(wish.name())) status = absl::UnavailableError("the node is not connected");
  if (!status.ok()) return Deliver(promise, Failure<proto::AdminReply>(status));
  Pulse();
  Commit(Catalogue::DrainChanges(wish.name(), wish.drain()),
         [this, promise, wish](const absl::Status& stored) mutable { Drained(promise, wish, stored); });
}

void ClusterManager::Drained(AdminPromise promise, const proto::DrainNode& wish, const absl::Status& stored) {
  if (stored.ok()) catalogue_.ApplyDrain(wish.name(), wish.drain());
  // It may have joined anew meanwhile, as what was stored then.
  static_cast<void>(members_.SetDraining(wish.name(), catalogue_.Drained(wish.name())));
  Pulse();
  const auto node = links_.Node(wish.name());
  if (!stored.ok()) return Deliver(promise, Failure<proto::AdminReply>(stored));
  if (!node) {
    return Deliver(promise, Failure<proto::AdminReply>(absl::UnavailableError(
                                "the node is not connected any more; it hears of it when it is back")));
  }
  Call<proto::DrainReply>(this, calls_, node, options_.ask_timeout, wish,
                          [promise](const absl::StatusOr<proto::DrainReply>& reply) mutable {
                            Deliver(promise, Failure<proto::AdminReply>(reply.status()));
                          });
}

void ClusterManager::KillGpu(AdminPromise promise, const proto::KillGpu& wish) {
  const auto node = links_.Node(wish.node());
  if (!node) {
    return Deliver(promise, Failure<proto::AdminReply>(absl::NotFoundError(
                                absl::StrCat("there is no node '", wish.node(), "' that is connected"))));
  }
  const auto* member = members_.Find(wish.node());
  if (member == nullptr || wish.gpu() >= static_cast<std::uint32_t>(member->record.gpus_size())) {
    return Deliver(promise, Failure<proto::AdminReply>(absl::NotFoundError(
                                absl::StrCat("node '", wish.node(), "' has no GPU ", wish.gpu()))));
  }
  Tell(wish.node(), "gpu-killed", absl::StrCat("GPU ", wish.gpu(), ", by an operator"));
  send(node, wish);
  Deliver(promise, proto::AdminReply());
}

template <class Merge>
void ClusterManager::AskNodes(AdminPromise promise, const std::string& only, Merge merge,
                              proto::AdminReply known) {
  std::vector<NodeControllerActor> asked;
  for (const auto& [name, node] : links_.nodes())
    if (only.empty() || only == name) asked.push_back(node);
  if (asked.empty() && !only.empty())
    return Deliver(promise, Failure<proto::AdminReply>(
                                absl::NotFoundError(absl::StrCat("there is no node '", only, "'"))));
  auto reply = std::make_shared<proto::AdminReply>(std::move(known));
  auto open = std::make_shared<std::size_t>(asked.size() + 1);
  auto close = [promise, reply, open]() mutable {
    if (--*open == 0) Deliver(promise, std::move(*reply));
  };
  for (const auto& node : asked) {
    Call<proto::NodeDescription>(
        this, calls_, node, options_.ask_timeout, proto::DescribeNode(),
        [reply, close, merge](absl::StatusOr<proto::NodeDescription> description) mutable {
          if (description.ok()) merge(*description, *reply);
          close();
        });
  }
  close();
}

void ClusterManager::ShowFunctions(AdminPromise promise, const proto::FunctionKey& key) {
  auto listed = AnswerFunctionQuery(key, {catalogue_, members_, placement_, events_, Now(this)});
  if (listed.code() != 0) return Deliver(promise, std::move(listed));
  AskNodes(promise, "", cluster::AddResidency, std::move(listed));
}

}  // namespace troupe::actors

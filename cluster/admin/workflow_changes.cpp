#include "cluster/admin/workflow_changes.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "cluster/admin/outdated_calls.hpp"
#include "cluster/admin/staged_models.hpp"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

void WorkflowChanges::Submit(Ask ask, const proto::SubmitWorkflow& wish) {
  parts_.mutations.Add(SubmittingWorkflow{.ask = ask, .yaml = wish.yaml()});
}

absl::Status WorkflowChanges::Validate(SubmittingWorkflow& change) const {
  TROUPE_ASSIGN_OR_RETURN(change.command, ReadWorkflow(change.yaml, parts_.catalogue, parts_.out.unix_now()));
  return absl::OkStatus();
}

void WorkflowChanges::Answer(const SubmittingWorkflow& change, const absl::Status& status) {
  auto reply = Failure<proto::AdminReply>(status);
  if (status.ok()) {
    *reply.add_workflows() = change.command;
    const auto& spec = change.command.spec();
    reply.set_message(OutdatedCallsOf(spec.name(), spec.version(), parts_.catalogue));
    parts_.out.Tell("manager", "workflow-submitted", change.command.spec().name());
  }
  parts_.admin.Reply(change.ask, std::move(reply));
}

void WorkflowChanges::Remove(Ask ask, const proto::RemoveWorkflow& wish) {
  parts_.mutations.Add(RemovingWorkflow{.ask = ask, .wish = wish});
}

absl::Status WorkflowChanges::Validate(RemovingWorkflow& change) const {
  const auto& name = change.wish.name();
  const auto& workflows = parts_.catalogue.workflows();
  const auto* known = workflows.Find(name, change.wish.version());
  // Unless it was removed meanwhile, or deployed anew.
  if (!change.why.ok() && (known == nullptr || known->submitted_unix_ns() != change.submitted_unix_ns))
    return absl::NotFoundError("it is not there any more");
  TROUPE_RETURN_IF_ERROR(workflows.ValidateRemoval(name, change.wish.version()));
  change.commands = RemovalOf(*known, parts_.catalogue, parts_.out.unix_now());
  *change.reply.add_workflows() = *known;
  for (const auto& [number, record] : workflows.workflows().at(name))
    if (record.spec().version() != known->spec().version()) *change.reply.add_workflows() = record;
  return absl::OkStatus();
}

void WorkflowChanges::Answer(RemovingWorkflow& change, const absl::Status& status) {
  if (!change.why.ok()) return parts_.admin.Reply(change.ask, Failure<proto::AdminReply>(change.why));
  if (!status.ok()) return parts_.admin.Reply(change.ask, Failure<proto::AdminReply>(status));
  parts_.out.Tell("manager", "workflow-removed", change.wish.name());
  parts_.admin.Reply(change.ask, std::move(change.reply));
}

void WorkflowChanges::CancelRun(Ask ask, const proto::CancelRun& wish) {
  proto::FinishRun command;
  command.set_run(wish.run());
  command.set_state(proto::RUN_CANCELLED);
  command.set_message("cancelled by an operator");
  command.set_claim(kAnyClaim);
  parts_.runs.End({std::move(command), Ender::kOperator, ask});
}

void WorkflowChanges::Cancelled(Ask ask, const std::string& run, absl::Status status) {
  const auto* known = parts_.catalogue.runs().Find(run);
  if (status.ok() && known != nullptr && known->state() != proto::RUN_CANCELLED)
    status = absl::FailedPreconditionError(absl::StrCat("run '", run, "' has ended already"));
  // Durable first: what is told of now stays cancelled, whatever dies next. Its calls end at once.
  if (const auto runner = parts_.owners.Find(run); status.ok() && runner.exists())
    parts_.out.Add(CancelRunner{runner});
  parts_.admin.Reply(ask, Failure<proto::AdminReply>(status));
}

}  // namespace troupe::cluster

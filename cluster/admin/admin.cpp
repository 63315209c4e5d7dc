#include "cluster/admin/admin.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

void Admin::On(AdminAsked& event) {
  auto& request = event.request;
  auto entry = parts_.settings.audited ? ChangeOf(request) : std::nullopt;
  if (entry) {
    entry->who = event.asker.who;
    entry->from = event.asker.from;
    entry->via = event.asker.via;
    // Imports take turns by the caller that the connection names, and not by what a shell says of itself.
    if (request.has_deploy() && HasName(*entry)) request.mutable_deploy()->set_client(entry->who);
    if (event.allowed.ok() && !event.room.ok())
      return Reply(event.ask, Failure<proto::AdminReply>(event.room));
    // A change that is not allowed is not begun, so that its only entry must not count as the end of one.
    if (event.allowed.ok()) entry->change = ++changes_;
    audited_.emplace(event.ask, *entry);
  }
  if (!event.allowed.ok()) return Reply(event.ask, Failure<proto::AdminReply>(event.allowed));
  if (!entry) return Carry(event.ask, request);
  entry->begun = true;
  parts_.audit.Write(*std::move(entry), ChangeAudited{event.ask, std::move(request)});
}

void Admin::Begun(const ChangeAudited& change, const absl::Status& written) {
  if (written.ok()) return Carry(change.ask, change.request);
  Reply(change.ask,
        Failure<proto::AdminReply>(absl::Status(
            written.code(), absl::StrCat("the audit could not write the change down, and it was not made: ",
                                         written.message()))));
}

void Admin::Reply(Ask ask, proto::AdminReply reply) {
  const auto audited = audited_.extract(ask);
  if (audited.empty()) return parts_.out.Add(cluster::Answer<proto::AdminReply>{ask, std::move(reply)});
  auto entry = audited.mapped();
  SetOutcome(reply, entry);
  parts_.audit.Write(std::move(entry), cluster::Answer<proto::AdminReply>{ask, std::move(reply)});
}

void Admin::Carry(Ask ask, const proto::AdminRequest& request) {
  using Case = proto::AdminRequest;
  switch (request.request_case()) {
    case Case::kDeploy:
      return parts_.deployments.Deploy(ask, request.deploy());
    case Case::kRemove:
      return parts_.deployments.Remove(ask, request.remove());
    case Case::kLoad:
      return parts_.deployments.SetLoaded(ask, request.load());
    case Case::kSplitFunction:
      return parts_.versions.Split(ask, request.split_function());
    case Case::kUpdateFunction:
      return parts_.sharing.Update(ask, request.update_function());
    case Case::kMoveFunction:
      return parts_.state_moves.Order(ask, request.move_function());
    case Case::kSubmitWorkflow:
      return parts_.workflows.Submit(ask, request.submit_workflow());
    case Case::kRemoveWorkflow:
      return parts_.workflows.Remove(ask, request.remove_workflow());
    case Case::kCancelRun:
      return parts_.workflows.CancelRun(ask, request.cancel_run());
    case Case::kCreateKey:
      return parts_.keys.Create(ask, request.create_key());
    case Case::kRevokeKey:
      return parts_.keys.Revoke(ask, request.revoke_key());
    case Case::kProfileFunction:
      return parts_.profiling.Begin(ask, request.profile_function());
    case Case::kImportProfile:
      return parts_.profiling.Import(ask, request.import_profile());
    case Case::kRemoveProfile:
      return parts_.profile_removals.Remove(ask, request.remove_profile());
    case Case::kCancelProfiling:
      return parts_.profiling.Cancel(ask, request.cancel_profiling());
    case Case::kDrain:
      return parts_.orders.Drain(ask, request.drain());
    case Case::kKillGpu:
      return parts_.orders.Kill(ask, request.kill_gpu());
    case Case::kInjectFault:
      return parts_.out.Add(CarryFault{ask, request.inject_fault()});
    default:
      return Answer(ask, request);
  }
}

void Admin::Answer(Ask ask, const proto::AdminRequest& request) {
  using Case = proto::AdminRequest;
  switch (request.request_case()) {
    case Case::kListKeys:
      return parts_.keys.List(ask);
    case Case::kListGpus:
      return parts_.inquiries.ListGpus(ask, request.list_gpus().node());
    case Case::kShowSlo:
      return parts_.inquiries.ShowSlo(ask, request.show_slo().key());
    case Case::kExplainRequest:
      return parts_.inquiries.Explain(ask, request.explain_request().id());
    case Case::kShowImport:
      return parts_.out.Add(ShowImports{ask, request.show_import().onnx_digest()});
    case Case::kShowScaling:
      return parts_.scaling.Show(ask, request.show_scaling().key());
    case Case::kShowProfile:
      return parts_.profiling.Show(ask, request.show_profile().key());
    case Case::kListFunctions:
      return parts_.inquiries.ShowFunctions(ask, {});
    case Case::kShowFunction:
      return parts_.inquiries.ShowFunctions(ask, request.show_function().key());
    default:
      return Reply(ask, AnswerFromState(request, parts_.State()));
  }
}

}  // namespace troupe::cluster

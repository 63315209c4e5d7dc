#include "cluster/admin/audit_entry.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/units.hpp"
#include "base/wire_status.hpp"
#include "cluster/function_registry.hpp"
#include "cluster/function_sharing.hpp"
#include "cluster/version_shares.hpp"
#include "proto/fault_names.hpp"
#include "proto/key_scopes.hpp"

namespace troupe::cluster {

namespace {

AuditEntry EntryOf(std::string action, std::string what) {
  AuditEntry entry;
  entry.action = std::move(action);
  entry.what = std::move(what);
  return entry;
}

std::string Versioned(const std::string& what, const std::string& name, const std::string& version) {
  return absl::StrCat(what, " '", name, "'", version.empty() ? "" : absl::StrCat(" version '", version, "'"));
}

std::string KeyWith(const proto::CreateKey& wish) {
  return absl::StrCat(
      "key '", wish.name(), "' with ", absl::StrJoin(wish.scopes(), ", ", [](std::string* out, int scope) {
        absl::StrAppend(out, std::string(proto::ScopeName(static_cast<proto::KeyScope>(scope))));
      }));
}

std::string FaultOf(const proto::InjectFault& fault) {
  auto text = absl::StrCat(FaultName(fault.kind()), " at '", fault.member(), "'");
  if (IsOfWorker(fault.kind())) absl::StrAppend(&text, ", GPU ", fault.gpu());
  if (fault.duration_ns() > 0) absl::StrAppend(&text, " for ", FormatDuration(Duration(fault.duration_ns())));
  return text;
}

AuditEntry SplitEntry(const proto::SplitFunction& split) {
  using Case = proto::SplitFunction;
  switch (split.wish_case()) {
    case Case::kCanary:
      return EntryOf("function.canary",
                     absl::StrCat(Versioned("function", split.name(), split.canary().version()), " with ",
                                  split.canary().percent(), " %"));
    case Case::kPromote:
      return EntryOf("function.promote", Versioned("function", split.name(), split.promote()));
    case Case::kRollBack:
      return EntryOf("function.rollback", Versioned("function", split.name(), ""));
    default:
      return EntryOf("function.split", Versioned("function", split.name(), ""));
  }
}

// "function 'digits': version 1 gets 90 %, version 2 gets 10 %"
std::string SplitOf(const proto::AdminReply& reply) {
  FunctionTable table;
  for (const auto& function : reply.functions()) table.Put(function.record());
  const auto& name = reply.functions(0).record().key().name();
  return absl::StrCat(Versioned("function", name, ""), ": ", DescribeShares(*table.VersionsOf(name)));
}

bool IsSplit(const AuditEntry& entry) {
  return entry.action == "function.canary" || entry.action == "function.promote" ||
         entry.action == "function.rollback" || entry.action == "function.split";
}

}  // namespace

std::optional<AuditEntry> ChangeOf(const proto::AdminRequest& request) {
  using Case = proto::AdminRequest;
  switch (request.request_case()) {
    case Case::kDeploy:
      return EntryOf("function.deploy",
                     absl::StrCat(Versioned("function", request.deploy().name(), request.deploy().version()),
                                  ", file ", request.deploy().onnx_digest()));
    case Case::kRemove:
      return EntryOf("function.remove",
                     Versioned("function", request.remove().key().name(), request.remove().key().version()));
    case Case::kLoad:
      return EntryOf(request.load().load() ? "function.load" : "function.unload",
                     Versioned("function", request.load().key().name(), request.load().key().version()));
    case Case::kSplitFunction:
      return SplitEntry(request.split_function());
    case Case::kUpdateFunction: {
      const auto& update = request.update_function();
      return EntryOf("function.update",
                     absl::StrCat(Versioned("function", update.key().name(), update.key().version()),
                                  " with ", DescribeUpdate(update)));
    }
    case Case::kMoveFunction:
      return EntryOf("function.move", absl::StrCat(Versioned("function", request.move_function().key().name(),
                                                             request.move_function().key().version()),
                                                   " to node '", request.move_function().node(), "'"));
    case Case::kSubmitWorkflow:
      return EntryOf("workflow.submit", "a workflow");
    case Case::kRemoveWorkflow:
      return EntryOf("workflow.remove", Versioned("workflow", request.remove_workflow().name(),
                                                  request.remove_workflow().version()));
    case Case::kCancelRun:
      return EntryOf("run.cancel", absl::StrCat("run '", request.cancel_run().run(), "'"));
    case Case::kCreateKey:
      return EntryOf("key.create", KeyWith(request.create_key()));
    case Case::kRevokeKey:
      return EntryOf("key.revoke", absl::StrCat("key '", request.revoke_key().name(), "'"));
    case Case::kProfileFunction:
      return EntryOf("profile.begin", Versioned("function", request.profile_function().key().name(),
                                                request.profile_function().key().version()));
    case Case::kImportProfile:
      return EntryOf("profile.import", Versioned("function", request.import_profile().key().name(),
                                                 request.import_profile().key().version()));
    case Case::kRemoveProfile:
      return EntryOf("profile.remove", Versioned("function", request.remove_profile().key().name(),
                                                 request.remove_profile().key().version()));
    case Case::kCancelProfiling:
      return EntryOf("profile.cancel", Versioned("function", request.cancel_profiling().key().name(),
                                                 request.cancel_profiling().key().version()));
    case Case::kDrain:
      return EntryOf(request.drain().drain() ? "node.drain" : "node.resume",
                     absl::StrCat("node '", request.drain().name(), "'"));
    case Case::kKillGpu:
      return EntryOf("gpu.kill", absl::StrCat("GPU ", request.kill_gpu().gpu(), " of node '",
                                              request.kill_gpu().node(), "'"));
    case Case::kInjectFault:
      return EntryOf("fault.inject", FaultOf(request.inject_fault()));
    default:
      return std::nullopt;
  }
}

void SetOutcome(const proto::AdminReply& reply, AuditEntry& entry) {
  entry.result = StatusIn(reply);
  if (reply.code() != 0) return;
  // The message says what a deployment still waits for, and that is not an error.
  entry.remark = reply.message();
  const bool has_version = entry.action == "function.deploy" || entry.action == "function.remove";
  if (has_version && reply.functions_size() > 0) {
    const auto& record = reply.functions(0).record();
    entry.what = Describe(record.key());
    if (entry.action == "function.deploy") absl::StrAppend(&entry.what, ", model ", record.model_digest());
  }
  if (entry.action == "function.update" && reply.functions_size() > 0) {
    const auto& record = reply.functions(0).record();
    entry.what = absl::StrCat(Describe(record.key()), ": ", DescribeSharing(record.sharing()));
  }
  if (IsSplit(entry) && reply.functions_size() > 0) entry.what = SplitOf(reply);
  if (entry.action.starts_with("workflow.") && reply.workflows_size() > 0) {
    const auto& spec = reply.workflows(0).spec();
    entry.what = Versioned("workflow", spec.name(), spec.version());
  }
}

AuditEntry JoinEntry(const proto::JoinRequest& join, const absl::Status& status) {
  const auto& member = join.member();
  auto entry = EntryOf(
      "member.join",
      absl::StrCat(member.kind() == proto::MEMBER_GATEWAY ? "gateway '" : "node '", member.name(), "'"));
  entry.who = absl::StrCat("member/", member.identity().empty() ? member.name() : member.identity());
  entry.from = member.address();
  entry.result = status;
  return entry;
}

bool HasName(const AuditEntry& entry) {
  return !entry.who.empty() && entry.who != kLoopbackCaller && entry.who != kUnknownCaller;
}

}  // namespace troupe::cluster

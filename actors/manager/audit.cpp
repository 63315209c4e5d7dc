#include "actors/manager/audit.hpp"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "actors/core/fault_hook.hpp"
#include "actors/peers/local_socket.hpp"
#include "base/units.hpp"
#include "base/wire_status.hpp"
#include "cluster/function_registry.hpp"
#include "security/api_keys.hpp"

namespace troupe::actors {

namespace {

constexpr char kLoopback[] = "loopback";
constexpr char kUnknown[] = "unknown";

storage::AuditLine Change(std::string action, std::string what) {
  storage::AuditLine line;
  line.action = std::move(action);
  line.what = std::move(what);
  return line;
}

std::string Versioned(const std::string& what, const std::string& name, const std::string& version) {
  return absl::StrCat(what, " '", name, "'", version.empty() ? "" : absl::StrCat(" version '", version, "'"));
}

std::string KeyWith(const proto::CreateKey& wish) {
  return absl::StrCat(
      "key '", wish.name(), "' with ", absl::StrJoin(wish.scopes(), ", ", [](std::string* out, int scope) {
        absl::StrAppend(out, std::string(security::ScopeName(static_cast<proto::KeyScope>(scope))));
      }));
}

std::string FaultOf(const proto::InjectFault& fault) {
  auto text = absl::StrCat(FaultName(fault.kind()), " at '", fault.member(), "'");
  if (IsOfWorker(fault.kind())) absl::StrAppend(&text, ", GPU ", fault.gpu());
  if (fault.duration_ns() > 0) absl::StrAppend(&text, " for ", FormatDuration(Duration(fault.duration_ns())));
  return text;
}

}  // namespace

std::optional<storage::AuditLine> ChangeOf(const proto::AdminRequest& request) {
  using Case = proto::AdminRequest;
  switch (request.request_case()) {
    case Case::kDeploy:
      return Change("function.deploy",
                    absl::StrCat(Versioned("function", request.deploy().name(), request.deploy().version()),
                                 ", file ", request.deploy().onnx_digest()));
    case Case::kRemove:
      return Change("function.remove",
                    Versioned("function", request.remove().key().name(), request.remove().key().version()));
    case Case::kLoad:
      return Change(request.load().load() ? "function.load" : "function.unload",
                    Versioned("function", request.load().key().name(), request.load().key().version()));
    case Case::kSubmitWorkflow:
      return Change("workflow.submit", "a workflow");
    case Case::kRemoveWorkflow:
      return Change("workflow.remove", Versioned("workflow", request.remove_workflow().name(),
                                                 request.remove_workflow().version()));
    case Case::kCancelRun:
      return Change("run.cancel", absl::StrCat("run '", request.cancel_run().run(), "'"));
    case Case::kCreateKey:
      return Change("key.create", KeyWith(request.create_key()));
    case Case::kRevokeKey:
      return Change("key.revoke", absl::StrCat("key '", request.revoke_key().name(), "'"));
    case Case::kDrain:
      return Change(request.drain().drain() ? "node.drain" : "node.resume",
                    absl::StrCat("node '", request.drain().name(), "'"));
    case Case::kKillGpu:
      return Change("gpu.kill", absl::StrCat("GPU ", request.kill_gpu().gpu(), " of node '",
                                             request.kill_gpu().node(), "'"));
    case Case::kInjectFault:
      return Change("fault.inject", FaultOf(request.inject_fault()));
    default:
      return std::nullopt;
  }
}

void SetOutcome(const proto::AdminReply& reply, storage::AuditLine& line) {
  storage::SetResult(StatusIn(reply), line);
  if (reply.code() != 0) return;
  // What is still to come of a deployment is said there, and is not an error.
  line.message = reply.message();
  const bool has_version = line.action == "function.deploy" || line.action == "function.remove";
  if (has_version && reply.functions_size() > 0) {
    const auto& record = reply.functions(0).record();
    line.what = cluster::Describe(record.key());
    if (line.action == "function.deploy") absl::StrAppend(&line.what, ", model ", record.model_digest());
  }
  if (line.action.starts_with("workflow.") && reply.workflows_size() > 0) {
    const auto& spec = reply.workflows(0).spec();
    line.what = Versioned("workflow", spec.name(), spec.version());
  }
}

storage::AuditLine JoinLine(const proto::JoinRequest& join, const absl::Status& status) {
  const auto& member = join.member();
  auto line = Change(
      "member.join",
      absl::StrCat(member.kind() == proto::MEMBER_GATEWAY ? "gateway '" : "node '", member.name(), "'"));
  line.who = absl::StrCat("member/", member.identity().empty() ? member.name() : member.identity());
  line.from = member.address();
  storage::SetResult(status, line);
  return line;
}

void SetCaller(const proto::Caller& caller, storage::AuditLine& line) {
  line.who = caller.name();
  line.from = caller.address();
  if (line.who.empty()) line.who = IsLoopback(line.from) ? kLoopback : kUnknown;
}

bool HasName(const storage::AuditLine& line) {
  return !line.who.empty() && line.who != kLoopback && line.who != kUnknown;
}

}  // namespace troupe::actors

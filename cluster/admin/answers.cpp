#include "cluster/admin/answers.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status.hpp"
#include "base/wire_status.hpp"
#include "cluster/admin/staged_models.hpp"
#include "cluster/copies/state_replicas.hpp"
#include "cluster/function_sharing.hpp"
#include "cluster/ownership/ownership.hpp"
#include "cluster/ownership/scaling.hpp"
#include "cluster/profiling/profiled_sharing.hpp"
#include "cluster/slo/slo_answers.hpp"
#include "cluster/workflow_parser.hpp"
#include "cluster/workflow_validator.hpp"

namespace troupe::cluster {

namespace {

proto::AdminReply Error(const absl::Status& status) {
  proto::AdminReply reply;
  SetStatus(status, reply);
  return reply;
}

proto::AdminReply AnswerStatus(const ManagerState& state) {
  proto::AdminReply reply;
  auto& status = *reply.mutable_status();
  status.set_cluster(state.catalogue.cluster());
  status.set_revision(state.catalogue.revision());
  status.set_functions(state.catalogue.functions().table().size());
  status.set_workflows(state.catalogue.workflows().size());
  status.set_runs(state.catalogue.runs().size());
  status.set_steps_recomputed(state.catalogue.runs().steps_recomputed());
  status.set_models_short(state.placement.problems().size());
  status.set_states_short(state.state_replicas.Short());
  status.set_states_unreachable(state.states_unreachable);
  for (const auto& [name, member] : state.members.members()) {
    auto& entry = *status.add_members();
    *entry.mutable_member() = member.record;
    *entry.mutable_load() = member.load;
    entry.set_silent_ns((state.now - member.last_heard).count());
  }
  return reply;
}

proto::AdminReply AnswerWorkflows(const ManagerState& state, const std::string& name,
                                  const std::string& version) {
  proto::AdminReply reply;
  for (const auto& [known, versions] : state.catalogue.workflows().workflows()) {
    if (!name.empty() && known != name) continue;
    for (const auto& [number, record] : versions)
      if (version.empty() || record.spec().version() == version) *reply.add_workflows() = record;
  }
  if (!name.empty() && reply.workflows_size() == 0)
    return Error(absl::NotFoundError(
        absl::StrCat("there is no workflow '", name, "'; `troupe workflow list` shows what there is")));
  return reply;
}

proto::AdminReply AnswerRead(const std::string& yaml) {
  const auto spec = ParseWorkflow(yaml);
  if (!spec.ok()) return Error(spec.status());
  proto::AdminReply reply;
  *reply.add_workflows()->mutable_spec() = *spec;
  return reply;
}

constexpr std::size_t kMostRuns = 1000;

// What a list shows of a run: everything but the tensors, which may be megabytes.
proto::RunRecord Outline(const proto::RunRecord& run) {
  proto::RunRecord out;
  auto& start = *out.mutable_start();
  start.set_run(run.start().run());
  start.set_workflow(run.start().workflow());
  start.set_version(run.start().version());
  start.set_gateway(run.start().gateway());
  start.set_unix_ns(run.start().unix_ns());
  start.set_parent(run.start().parent());
  start.set_parent_step(run.start().parent_step());
  out.set_state(run.state());
  out.set_message(run.message());
  out.set_finished_unix_ns(run.finished_unix_ns());
  for (const auto& step : run.steps()) {
    auto& committed = *out.add_steps();
    committed.set_step(step.step());
    committed.set_unix_ns(step.unix_ns());
    committed.set_recomputed(step.recomputed());
    committed.set_end(step.end());
    committed.set_message(step.message());
    committed.set_code(step.code());
  }
  return out;
}

// The newest, oldest first.
proto::AdminReply AnswerRuns(const ManagerState& state, const std::string& workflow) {
  auto runs = state.catalogue.runs().List(workflow);
  std::stable_sort(runs.begin(), runs.end(),
                   [](const auto* a, const auto* b) { return a->start().unix_ns() < b->start().unix_ns(); });
  const auto surplus = runs.size() > kMostRuns ? runs.size() - kMostRuns : 0;
  proto::AdminReply reply;
  for (std::size_t i = surplus; i < runs.size(); ++i) *reply.add_runs() = Outline(*runs[i]);
  return reply;
}

proto::AdminReply AnswerRun(const ManagerState& state, const std::string& name) {
  const auto* run = state.catalogue.runs().Find(name);
  if (run == nullptr) return Error(absl::NotFoundError(absl::StrCat("there is no run '", name, "'")));
  proto::AdminReply reply;
  *reply.add_runs() = *run;
  return reply;
}

}  // namespace

std::string StateName(proto::MemberState state) {
  return absl::AsciiStrToLower(absl::StripPrefix(proto::MemberState_Name(state), "MEMBER_"));
}

proto::AdminReply AnswerFromState(const proto::AdminRequest& request, const ManagerState& state) {
  using Case = proto::AdminRequest;
  switch (request.request_case()) {
    case Case::kClusterStatus:
      return AnswerStatus(state);
    case Case::kListWorkflows:
      return AnswerWorkflows(state, "", "");
    case Case::kShowWorkflow:
      return AnswerWorkflows(state, request.show_workflow().name(), request.show_workflow().version());
    case Case::kReadWorkflow:
      return AnswerRead(request.read_workflow().yaml());
    case Case::kListRuns:
      return AnswerRuns(state, request.list_runs().workflow());
    case Case::kShowRun:
      return AnswerRun(state, request.show_run().run());
    case Case::kListUsage: {
      proto::AdminReply reply;
      for (auto& amount : state.catalogue.usage().Sum(request.list_usage()))
        *reply.add_usage() = std::move(amount);
      return reply;
    }
    case Case::kListEvents: {
      proto::AdminReply reply;
      for (auto& event : state.events.After(request.list_events().after(), request.list_events().limit()))
        *reply.add_events() = std::move(event);
      return reply;
    }
    default:
      return Error(absl::UnimplementedError(
          "this manager does not know the request; upgrade it, or use an older shell"));
  }
}

proto::AdminReply AnswerFunctionQuery(const proto::FunctionKey& key, const ManagerState& state) {
  proto::AdminReply reply;
  const auto add = [&](const proto::FunctionRecord& record) {
    if (key.version().empty() || key.version() == record.key().version()) AddFunction(record, state, reply);
  };
  const auto& functions = state.catalogue.functions().table();
  if (key.name().empty()) {
    functions.ForEach(add);
  } else if (const auto* versions = functions.VersionsOf(key.name())) {
    for (const auto& [number, record] : *versions) add(record);
  } else {
    for (const auto& stage : StagesOf(state.catalogue.workflows(), key))
      if (const auto* record = functions.Find(stage)) AddFunction(*record, state, reply);
  }
  if (reply.functions().empty() && !key.name().empty())
    return Error(absl::NotFoundError(absl::StrCat("there is no ", Describe(key))));
  // A list shows no settings.
  if (key.name().empty()) return reply;
  const auto kinds = KindsOf(state.members);
  for (auto& function : *reply.mutable_functions()) {
    const auto profiled = ValuesFromProfiles(function.record(), state.catalogue.profiles(), kinds);
    for (auto& setting : AppliedSettings(function.record(), profiled))
      *function.add_sharing() = std::move(setting);
    function.set_binding(state.scaling.BindingOf(function.record()));
    function.set_place_problem(state.ownership.ProblemOf(function.record().key()));
  }
  return reply;
}

void AddFunction(const proto::FunctionRecord& record, const ManagerState& state, proto::AdminReply& reply) {
  auto& status = *reply.add_functions();
  *status.mutable_record() = record;
  for (const auto& node : state.placement.copies().HoldersOf(record.model_digest()))
    status.add_adopted_by(node);
  state.state_replicas.Describe(status);
}

void SetRemarks(std::vector<std::string> remarks, proto::AdminReply& reply) {
  std::erase(remarks, "");
  reply.set_message(absl::StrJoin(remarks, "; "));
}

void AddResidency(const proto::NodeDescription& node, proto::AdminReply& reply) {
  for (const auto& gpu : node.gpus())
    for (const auto& resident : gpu.worker().resident())
      for (auto& function : *reply.mutable_functions())
        if (function.record().model_digest() == resident.digest())
          function.add_resident_on(absl::StrCat(node.node(), "/", gpu.gpu().index()));
  for (const auto& sequences : node.sequences())
    for (auto& function : *reply.mutable_functions())
      if (function.record().key().name() == sequences.function().name() &&
          function.record().key().version() == sequences.function().version() &&
          function.state_home() == node.node())  // others may have copies, or files of an earlier time
        function.set_sequences(function.sequences() + sequences.count());
}

void GpusOf(const proto::NodeDescription& node, proto::AdminReply& reply) {
  for (const auto& gpu : node.gpus()) *reply.add_gpus() = gpu;
  if (node.has_region()) *reply.add_regions() = node.region();
  AddAlpha(node.node(), node.alpha(), reply);
}

absl::StatusOr<proto::WorkflowRecord> ReadWorkflow(const std::string& yaml, const Catalogue& catalogue,
                                                   std::int64_t unix_now) {
  const auto& functions = catalogue.functions().table();
  TROUPE_ASSIGN_OR_RETURN(auto record, CheckWorkflow(yaml, functions, catalogue.workflows().Finder()));
  record.set_submitted_unix_ns(unix_now);
  return catalogue.workflows().ValidateSubmit(record, functions);
}

}  // namespace troupe::cluster

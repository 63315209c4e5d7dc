#include "cluster/admin/staged_models.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "cluster/admin/outdated_calls.hpp"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"
#include "cluster/workflow_validator.hpp"
#include "cluster/workflows/value_ref.hpp"
#include "proto/precision.hpp"

namespace troupe::cluster {

namespace {

// Gives each stage its part of the deadline.
void DivideDeadline(std::vector<proto::FunctionRecord>& stages) {
  double all = 0;
  for (const auto& stage : stages) all += static_cast<double>(stage.weights_bytes());
  for (auto& stage : stages) {
    const auto whole = stage.slo().deadline_ns();
    stage.mutable_stage()->set_deadline_ns(whole);
    if (whole == 0) continue;
    const double part = static_cast<double>(stage.weights_bytes()) / std::max(all, 1.0);
    const auto deadline = static_cast<std::int64_t>(static_cast<double>(whole) * part);
    stage.mutable_slo()->set_deadline_ns(std::max<std::int64_t>(deadline, 1));
  }
}

// The workflow that calls the stages in their order. It connects them by the names of values, which each stage has from the model.
class StagedWorkflow {
 public:
  StagedWorkflow(const std::string& name, const std::string& version,
                 const std::vector<proto::FunctionRecord>& stages) {
    spec_.set_name(name);
    spec_.set_version(version);
    spec_.set_stages(static_cast<std::uint32_t>(stages.size()));
    for (const auto& stage : stages) AddStep(stage);
    for (const auto& output : stages.front().stage().model_outputs()) Bind(output, *spec_.add_outputs());
  }
  [[nodiscard]] const proto::WorkflowSpec& spec() const { return spec_; }

 private:
  void AddStep(const proto::FunctionRecord& stage) {
    auto& step = *spec_.add_steps();
    step.set_name(absl::StrCat("stage-", stage.stage().number()));
    step.set_function(stage.key().name());
    step.set_version(spec_.version());
    for (const auto& input : stage.inputs()) {
      // What no stage before it makes is an input of the model.
      if (values_.try_emplace(input.name(), ValueOf("", input.name())).second)
        *spec_.add_inputs()->mutable_spec() = input;
      Bind(input.name(), *step.add_inputs());
    }
    for (const auto& output : stage.outputs()) values_[output.name()] = ValueOf(step.name(), output.name());
  }
  void Bind(const std::string& tensor, proto::Binding& binding) const {
    binding.set_tensor(tensor);
    const auto value = values_.find(tensor);
    // A value that is not there is refused when the workflow is checked.
    binding.set_value(value == values_.end() ? tensor : value->second);
  }

  proto::WorkflowSpec spec_;
  std::map<std::string, std::string> values_;  // by the name that tensors have
};

// The record to store: checked as a file would be, against functions that are not deployed yet.
absl::StatusOr<proto::WorkflowRecord> WorkflowOf(const std::string& name, const std::string& version,
                                                 const std::vector<proto::FunctionRecord>& stages) {
  FunctionTable table;
  for (const auto& stage : stages) table.Put(stage);
  return ValidateWorkflow(StagedWorkflow(name, version, stages).spec(), table);
}

}  // namespace

std::string StageName(const std::string& model, std::uint32_t number) {
  return absl::StrCat(model, ".", number);
}

std::vector<proto::FunctionKey> StagesOf(const WorkflowRegistry& workflows, const proto::FunctionKey& model) {
  std::vector<proto::FunctionKey> stages;
  const auto* workflow = workflows.Find(model.name(), model.version());
  if (workflow == nullptr || workflow->spec().stages() == 0) return stages;
  for (const auto& step : workflow->spec().steps()) {
    stages.emplace_back().set_name(step.function());
    stages.back().set_version(step.version());
  }
  return stages;
}

absl::Status NotOneFunction(const Catalogue& catalogue, const proto::FunctionKey& key) {
  const auto stages = StagesOf(catalogue.workflows(), key);
  if (stages.empty()) return absl::NotFoundError(absl::StrCat("there is no ", Describe(key)));
  const auto name = [](std::string* out, const proto::FunctionKey& stage) { out->append(stage.name()); };
  return absl::FailedPreconditionError(absl::StrCat(
      "'", key.name(), "' is a model in ", stages.size(),
      " stages, each of which is a function: name one of them (", absl::StrJoin(stages, ", ", name), ")"));
}

std::vector<CatalogueCommand> RemovalOf(const proto::WorkflowRecord& workflow, const Catalogue& catalogue,
                                        std::int64_t unix_now) {
  proto::FunctionKey key;
  key.set_name(workflow.spec().name());
  key.set_version(workflow.spec().version());
  proto::RemoveWorkflow removal;
  removal.set_name(key.name());
  removal.set_version(key.version());
  std::vector<CatalogueCommand> commands = {std::move(removal)};
  for (auto& stage : StagesOf(catalogue.workflows(), key)) {
    if (catalogue.functions().table().Find(stage) == nullptr) continue;
    proto::RemoveFunction command;
    *command.mutable_key() = std::move(stage);
    command.set_unix_ns(unix_now);
    commands.emplace_back(std::move(command));
  }
  return commands;
}

proto::StageBounds StagedModels::BoundsFor(const proto::DeployRequest& wish) const {
  if (wish.stage_memory() > 0) return {Bytes(wish.stage_memory()), Bytes(wish.stage_memory())};
  // The rest of a GPU is for what its runs need.
  const Bytes gpu = PlacementTable::LargestGpu(parts_.members.table());
  return {gpu, Bytes(gpu.count() / 4 * 3)};
}

void StagedModels::Begin(Ask ask, const proto::DeployRequest& wish, const proto::StageBounds& bounds,
                         proto::FunctionRecord first) {
  if (!wish.state().empty())
    return parts_.admin.Reply(
        ask, Failure<proto::AdminReply>(absl::InvalidArgumentError(absl::StrCat(
                 "the model is divided into ", first.stage().count(),
                 " stages, and a model that keeps state cannot be; use a GPU that holds it whole"))));
  auto& importing = importing_[ask] = {wish, bounds, {}};
  importing.records.push_back(std::move(first));
  ImportNext(ask, importing);
}

void StagedModels::ImportNext(Ask ask, const Importing& importing) {
  const auto number = static_cast<std::uint32_t>(importing.records.size()) + 1;
  parts_.out.Add(ImportModel{ask,
                             importing.wish.onnx_digest(),
                             importing.wish.client(),
                             proto::PackedIn(importing.wish.precision()),
                             {importing.bounds, number}});
}

bool StagedModels::Imported(ModelImported& event) {
  const auto it = importing_.find(event.ask);
  if (it == importing_.end()) return false;
  auto& importing = it->second;
  if (event.function.ok()) {
    importing.records.push_back(*std::move(event.function));
    if (importing.records.size() < importing.records.front().stage().count()) {
      ImportNext(event.ask, importing);
    } else {
      Deploy(event.ask, std::move(importing_.extract(it).mapped()));
    }
    return true;
  }
  importing_.erase(it);
  parts_.admin.Reply(event.ask, Failure<proto::AdminReply>(event.function.status()));
  return true;
}

void StagedModels::Deploy(Ask ask, Importing importing) {
  DeployingStages change{.ask = ask, .name = importing.wish.name(), .version = importing.wish.version()};
  for (auto& record : importing.records) {
    record = parts_.deployments.Complete(std::move(record), importing.wish);
    record.mutable_key()->set_name(StageName(change.name, record.stage().number()));
    record.mutable_stage()->set_workflow(change.name);
  }
  DivideDeadline(importing.records);
  change.stages = std::move(importing.records);
  parts_.mutations.Add(std::move(change));
}

absl::Status StagedModels::Validate(DeployingStages& change) const {
  const auto& functions = parts_.catalogue.functions();
  const auto* newest = parts_.catalogue.workflows().Find(change.name, "");
  if (functions.table().VersionsOf(change.name) != nullptr)
    return absl::AlreadyExistsError(absl::StrCat("the model is divided into stages, and versions of '",
                                                 change.name,
                                                 "' that are not divided are deployed; choose another name"));
  TROUPE_ASSIGN_OR_RETURN(
      change.version,
      ChooseVersion(change.version, newest == nullptr ? 0 : VersionNumber(newest->spec().version())));
  for (auto& stage : change.stages) {
    proto::DeployFunction command;
    *command.mutable_record() = stage;
    command.mutable_record()->mutable_key()->set_version(change.version);
    TROUPE_RETURN_IF_ERROR(PlacementTable::CheckFits(command.record(), parts_.members.table()));
    TROUPE_ASSIGN_OR_RETURN(command, functions.ValidateDeploy(command));
    parts_.sharing.FillIn(*command.mutable_record());
    stage = command.record();
    change.commands.emplace_back(std::move(command));
  }
  TROUPE_ASSIGN_OR_RETURN(auto workflow, WorkflowOf(change.name, change.version, change.stages));
  workflow.set_submitted_unix_ns(parts_.out.unix_now());
  TROUPE_ASSIGN_OR_RETURN(change.workflow,
                          parts_.catalogue.workflows().ValidateSubmit(workflow, functions.table()));
  change.commands.emplace_back(change.workflow);
  return absl::OkStatus();
}

void StagedModels::Answer(DeployingStages& change, const absl::Status& status) {
  if (!status.ok()) return parts_.admin.Reply(change.ask, Failure<proto::AdminReply>(status));
  parts_.out.Tell(
      "manager", "function-deployed",
      absl::StrCat(change.name, " version ", change.version, " in ", change.stages.size(), " stages"));
  change.open = change.stages.size();
  const auto ask = change.ask;
  const auto stages = change.stages;
  deployed_.emplace(ask, std::move(change));
  for (const auto& stage : stages) parts_.copies.AwaitAdoption({ask, stage});
}

void StagedModels::Adopted(const Deployed& deployed, const absl::Status& status) {
  const auto it = deployed_.find(deployed.ask);
  if (it == deployed_.end()) return;
  auto& change = it->second;
  if (!Deployments::IsPassing(status)) {
    // No node can serve it: all of it is taken back, and the developer is told why.
    RemovingWorkflow removal{
        .ask = deployed.ask, .why = status, .submitted_unix_ns = change.workflow.submitted_unix_ns()};
    removal.wish.set_name(change.name);
    removal.wish.set_version(change.version);
    deployed_.erase(it);
    return parts_.mutations.Add(std::move(removal));
  }
  change.remarks.Update(status);
  if (--change.open > 0) return;
  proto::AdminReply reply;
  for (const auto& stage : change.stages) AddFunction(stage, parts_.State(), reply);
  *reply.add_workflows() = change.workflow;
  SetRemarks(
      {std::string(change.remarks.message()), OutdatedCallsOf(change.name, change.version, parts_.catalogue)},
      reply);
  deployed_.erase(it);
  parts_.admin.Reply(deployed.ask, std::move(reply));
}

}  // namespace troupe::cluster

#include "shell/declarative/plan.hpp"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/nearest.hpp"
#include "base/status.hpp"
#include "shell/declarative/function_plan.hpp"
#include "shell/text/cat.hpp"
#include "shell/text/text.hpp"

namespace troupe::shell {

namespace {

std::map<std::string, KnownFunction::Versions> FunctionsIn(const proto::AdminReply& reply) {
  std::map<std::string, KnownFunction::Versions> functions;
  for (const auto& function : reply.functions()) {
    const auto& key = function.record().key();
    std::uint64_t number = 0;
    if (absl::SimpleAtoi(key.version(), &number)) functions[key.name()].emplace(number, function.record());
  }
  return functions;
}

// Without what a file's layout makes of it, and what the manager keeps beside it.
proto::WorkflowSpec WithoutPlaces(proto::WorkflowSpec spec) {
  spec.clear_version();
  for (auto& input : *spec.mutable_inputs()) input.clear_line();
  for (auto& output : *spec.mutable_outputs()) output.clear_line();
  for (auto& step : *spec.mutable_steps()) {
    step.clear_line();
    step.clear_outputs();
    for (auto& input : *step.mutable_inputs()) input.clear_line();
    if (step.has_when()) step.mutable_when()->clear_line();
    if (!step.has_on_error()) continue;
    step.mutable_on_error()->clear_line();
    for (auto& value : *step.mutable_on_error()->mutable_values()) value.clear_line();
  }
  return spec;
}

bool SameWorkflow(const proto::WorkflowSpec& a, const proto::WorkflowSpec& b) {
  return google::protobuf::util::MessageDifferencer::Equals(WithoutPlaces(a), WithoutPlaces(b));
}

class Planner {
 public:
  Planner(const Manifests& manifests, const Present& present)
      : manifests_(manifests), present_(present), functions_(FunctionsIn(present.functions)) {}

  absl::StatusOr<Plan> Make(Pruning pruning) {
    for (const auto& function : manifests_.functions) {
      if (HasWorkflow(function.name))
        return WrongAt(function.place, Cat("'", Printable(function.name),
                                           "' is a workflow in the cluster, and "
                                           "functions and workflows share one space of names"));
      const auto found = functions_.find(function.name);
      const KnownFunction known(found == functions_.end() ? KnownFunction::Versions() : found->second);
      TROUPE_RETURN_IF_ERROR(PlanFunction(function, known, present_, plan_));
    }
    for (const std::size_t i : CalledFirst())
      TROUPE_RETURN_IF_ERROR(AddWorkflow(manifests_.workflows[i], present_.read_workflows.at(i)));
    if (pruning == Pruning::kRemove) {
      RemoveWorkflows();
      RemoveFunctions();
    }
    return std::move(plan_);
  }

 private:
  [[nodiscard]] bool HasWorkflow(const std::string& name) const {
    const auto& workflows = present_.workflows.workflows();
    return std::any_of(workflows.begin(), workflows.end(),
                       [&](const proto::WorkflowRecord& record) { return record.spec().name() == name; });
  }

  // The version that is named, else the newest; null: there is none.
  [[nodiscard]] const proto::WorkflowSpec* KnownWorkflow(const proto::WorkflowSpec& spec) const {
    const proto::WorkflowSpec* known = nullptr;
    std::uint64_t newest = 0;
    for (const auto& record : present_.workflows.workflows()) {
      std::uint64_t number = 0;
      if (record.spec().name() != spec.name() || !absl::SimpleAtoi(record.spec().version(), &number))
        continue;
      if (!spec.version().empty() ? spec.version() == record.spec().version() : number > newest) {
        known = &record.spec();
        newest = number;
      }
    }
    return known;
  }

  // The manifests of workflows, those that others call before those others; the manager refuses circles.
  [[nodiscard]] std::vector<std::size_t> CalledFirst() const {
    std::vector<std::size_t> order;
    std::vector<std::size_t> left(manifests_.workflows.size());
    std::iota(left.begin(), left.end(), std::size_t{0});
    while (!left.empty()) {
      const auto waits = [&](std::size_t i) {
        const auto& steps = present_.read_workflows.at(i).steps();
        return std::any_of(left.begin(), left.end(), [&](std::size_t other) {
          return other != i && std::any_of(steps.begin(), steps.end(), [&](const auto& step) {
                   return step.workflow() == manifests_.workflows[other].name;
                 });
        });
      };
      const auto ready = std::find_if_not(left.begin(), left.end(), waits);
      const auto next = ready == left.end() ? left.begin() : ready;
      order.push_back(*next);
      left.erase(next);
    }
    return order;
  }

  // The functions and workflows that a workflow calls are in the cluster or in the manifests.
  [[nodiscard]] absl::Status CheckSteps(const WorkflowManifest& workflow,
                                        const proto::WorkflowSpec& spec) const {
    std::vector<std::string> names;
    for (const auto& [name, versions] : functions_) names.push_back(name);
    for (const auto& function : manifests_.functions) names.push_back(function.name);
    std::vector<std::string> workflows;
    for (const auto& record : present_.workflows.workflows()) workflows.push_back(record.spec().name());
    for (const auto& other : manifests_.workflows) workflows.push_back(other.name);
    for (const auto& step : spec.steps()) {
      if (!step.workflow().empty()) {
        if (std::find(workflows.begin(), workflows.end(), step.workflow()) != workflows.end()) continue;
        return WrongAt(
            {workflow.place.file, static_cast<int>(step.line())},
            Cat("step '", Printable(step.name()), "' calls the workflow '", Printable(step.workflow()),
                "', which neither the cluster nor these files have", DidYouMean(step.workflow(), workflows)));
      }
      if (std::find(names.begin(), names.end(), step.function()) != names.end()) continue;
      return WrongAt(
          {workflow.place.file, static_cast<int>(step.line())},
          Cat("step '", Printable(step.name()), "' calls the function '", Printable(step.function()),
              "', which neither the cluster nor these files have", DidYouMean(step.function(), names)));
    }
    return absl::OkStatus();
  }

  absl::Status AddWorkflow(const WorkflowManifest& workflow, const proto::WorkflowSpec& spec) {
    if (functions_.contains(spec.name()))
      return WrongAt(workflow.place, Cat("'", Printable(spec.name()),
                                         "' is a function in the cluster, and "
                                         "functions and workflows share one space of names"));
    TROUPE_RETURN_IF_ERROR(CheckSteps(workflow, spec));
    const auto* known = KnownWorkflow(spec);
    const auto what = Cat("workflow ", Printable(spec.name()),
                          spec.version().empty() ? "" : Cat(" version ", Printable(spec.version())));
    if (known != nullptr && SameWorkflow(*known, spec)) {
      plan_.unchanged.push_back(what);
      return absl::OkStatus();
    }
    if (known != nullptr && !spec.version().empty())
      return WrongAt(workflow.place, Cat(what,
                                         " is in the cluster with other steps, inputs or outputs, and a "
                                         "version does not change: give it the number of a new version"));
    PlannedChange change;
    change.sign = known == nullptr ? '+' : '~';
    change.what = what;
    change.place = workflow.place;
    change.details = {
        Cat("steps: ", known == nullptr ? "" : Cat(known->steps_size(), " -> "), spec.steps_size())};
    change.request.mutable_submit_workflow()->set_yaml(workflow.yaml);
    plan_.changes.push_back(std::move(change));
    return absl::OkStatus();
  }

  void RemoveWorkflows() {
    std::set<std::string> kept;
    for (const auto& workflow : manifests_.workflows) kept.insert(workflow.name);
    for (const auto& record : present_.workflows.workflows()) {
      const auto& spec = record.spec();
      if (kept.contains(spec.name())) continue;
      PlannedChange change{
          .sign = '-',
          .what = Cat("workflow ", Printable(spec.name()), " version ", Printable(spec.version()))};
      change.request.mutable_remove_workflow()->set_name(spec.name());
      change.request.mutable_remove_workflow()->set_version(spec.version());
      plan_.changes.push_back(std::move(change));
    }
  }

  void RemoveFunctions() {
    std::set<std::string> kept;
    for (const auto& function : manifests_.functions) kept.insert(function.name);
    for (const auto& [name, versions] : functions_) {
      if (kept.contains(name)) continue;
      // A version with a share of the requests is not removed.
      if (const auto shares = KnownFunction(versions).Shares(); !shares.empty()) {
        PlannedChange change{.sign = '-',
                             .what = Cat("function ", Printable(name), ", weights of its versions"),
                             .details = {ShownShares(shares)}};
        change.request = SharesRequest(name, {});
        plan_.changes.push_back(std::move(change));
      }
      for (const auto& [number, record] : versions) {
        PlannedChange change{.sign = '-', .what = Cat("function ", Printable(name), " version ", number)};
        *change.request.mutable_remove()->mutable_key() = record.key();
        plan_.changes.push_back(std::move(change));
      }
    }
  }

  const Manifests& manifests_;
  const Present& present_;
  const std::map<std::string, KnownFunction::Versions> functions_;
  Plan plan_;
};

}  // namespace

absl::StatusOr<Plan> MakePlan(const Manifests& manifests, const Present& present, Pruning pruning) {
  return Planner(manifests, present).Make(pruning);
}

}  // namespace troupe::shell

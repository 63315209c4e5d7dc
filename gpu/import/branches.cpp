#include "gpu/import/branches.hpp"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/import/onnx_node.hpp"
#include "gpu/import/step_order.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {
namespace {

// Values that a branch reads and does not make, in the order in which it reads them.
std::vector<std::string> OuterValues(const Graph& branch) {
  absl::flat_hash_set<std::string> known;
  for (const auto& [name, constant] : branch.constants) known.insert(name);
  for (const proto::Step& step : branch.steps)
    for (const std::string& output : step.outputs()) known.insert(output);
  std::vector<std::string> outer;
  const auto read = [&](const std::string& name) {
    if (!name.empty() && known.insert(name).second) outer.push_back(name);
  };
  for (const proto::Step& step : branch.steps)
    for (const std::string& input : step.inputs()) read(input);
  for (const proto::TensorSpec& output : branch.outputs) read(output.name());
  return outer;
}

void AddNumber(proto::Step& step, const std::string& name, std::size_t value) {
  proto::Attribute& attribute = *step.add_attributes();
  attribute.set_name(name);
  attribute.set_i(static_cast<std::int64_t>(value));
}

// 1, 0, or -1 for a condition that is no constant.
int ConditionOf(const Graph& graph, const proto::Step& step) {
  const auto condition = graph.constants.find(step.inputs(0));
  if (condition == graph.constants.end() || condition->second.type != proto::BOOL ||
      condition->second.data->size() != 1)
    return -1;
  return (*condition->second.data)[0] != 0 ? 1 : 0;
}

class Inliner {
 public:
  Inliner(Graph& graph, const proto::Step& step, const Graph& branch, std::vector<proto::Step>& out)
      : graph_(graph), step_(step), branch_(branch), out_(out) {}

  absl::Status Run() {
    NameValues();
    for (const auto& [name, constant] : branch_.constants)
      if (!graph_.constants.try_emplace(names_.at(name), constant).second)
        return absl::InvalidArgumentError(
            absl::StrCat(StepLabel(step_), ": the name '", names_.at(name), "' is taken"));
    for (const proto::Step& inner : branch_.steps) out_.push_back(Renamed(inner));
    // Outputs that no step of the branch makes under their outer name.
    for (int i = 0; i < step_.outputs_size(); ++i) {
      const std::string& from = names_.at(branch_.outputs[static_cast<std::size_t>(i)].name());
      if (step_.outputs(i).empty() || from == step_.outputs(i)) continue;
      proto::Step& copy = out_.emplace_back();
      copy.set_op("Identity");
      copy.set_name(step_.outputs(i));
      copy.add_inputs(from);
      copy.add_outputs(step_.outputs(i));
    }
    return absl::OkStatus();
  }

 private:
  // Two branches, or two Ifs, may use one name for different values, so inner names get a prefix.
  void NameValues() {
    const auto& captures = StepContext{step_}.Find("captures")->strings().values();
    for (int i = 0; i < captures.size(); ++i) names_[captures[i]] = step_.inputs(i + 1);
    const std::string prefix = absl::StrCat(step_.outputs(0), "/");
    for (const auto& [name, constant] : branch_.constants) names_[name] = absl::StrCat(prefix, name);
    for (const proto::Step& inner : branch_.steps)
      for (const std::string& output : inner.outputs())
        if (!output.empty()) names_[output] = absl::StrCat(prefix, output);
    for (const proto::Step& inner : branch_.steps)
      for (const std::string& output : inner.outputs()) GiveOuterName(output);
  }

  void GiveOuterName(const std::string& value) {
    for (int i = 0; i < step_.outputs_size(); ++i) {
      if (value.empty() || step_.outputs(i).empty() ||
          branch_.outputs[static_cast<std::size_t>(i)].name() != value)
        continue;
      names_[value] = step_.outputs(i);
      return;
    }
  }

  proto::Step Renamed(const proto::Step& inner) {
    proto::Step step = inner;
    for (std::string& name : *step.mutable_inputs())
      if (!name.empty()) name = names_.at(name);
    for (std::string& name : *step.mutable_outputs())
      if (!name.empty()) name = names_.at(name);
    if (step.op() != "If") return step;
    for (proto::Attribute& attribute : *step.mutable_attributes()) {
      if (!attribute.has_i()) continue;
      graph_.bodies.push_back(branch_.bodies[static_cast<std::size_t>(attribute.i())]);
      attribute.set_i(static_cast<std::int64_t>(graph_.bodies.size() - 1));
    }
    return step;
  }

  Graph& graph_;
  const proto::Step& step_;
  const Graph& branch_;
  std::vector<proto::Step>& out_;
  absl::flat_hash_map<std::string, std::string> names_;  // of the branch's values -> of the graph's
};

}  // namespace

absl::Status AddIf(proto::Step step, const std::vector<std::shared_ptr<const Graph>>& branches,
                   const std::vector<std::string>& names, Graph& graph) {
  const std::string label = StepLabel(step);
  if (step.inputs_size() != 1 || step.outputs_size() == 0 || step.outputs(0).empty())
    return absl::InvalidArgumentError(absl::StrCat(label, " must have one input and a named output"));
  if (names.size() != 2 || names[0] == names[1])
    return absl::InvalidArgumentError(absl::StrCat(label, " must have a then_branch and an else_branch"));
  absl::flat_hash_set<std::string> captured;
  proto::Attribute captures;
  captures.set_name("captures");
  captures.mutable_strings();
  for (std::size_t i = 0; i < 2; ++i) {
    if (names[i] != "then_branch" && names[i] != "else_branch")
      return absl::InvalidArgumentError(absl::StrCat(label, " has the unknown branch '", names[i], "'"));
    if (branches[i]->outputs.size() != static_cast<std::size_t>(step.outputs_size()))
      return absl::InvalidArgumentError(absl::StrCat(label, " has ", step.outputs_size(),
                                                     " outputs, but its ", names[i], " has ",
                                                     branches[i]->outputs.size()));
    for (const proto::TensorSpec& output : branches[i]->outputs)
      if (output.name().empty())
        return absl::InvalidArgumentError(
            absl::StrCat(label, ": an output of its ", names[i], " has no name"));
    for (const std::string& value : OuterValues(*branches[i])) {
      if (!captured.insert(value).second) continue;
      captures.mutable_strings()->add_values(value);
      step.add_inputs(value);
    }
    AddNumber(step, names[i], graph.bodies.size());
    graph.bodies.push_back(branches[i]);
  }
  *step.add_attributes() = std::move(captures);
  graph.steps.push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<bool> InlineBranches(Graph& graph) {
  bool inlined = false;
  std::vector<proto::Step> steps;
  for (proto::Step& step : graph.steps) {
    const int condition = step.op() == "If" ? ConditionOf(graph, step) : -1;
    if (condition < 0) {
      steps.push_back(std::move(step));
      continue;
    }
    const std::int64_t place = StepContext{step}.Int(condition == 1 ? "then_branch" : "else_branch", 0);
    const std::shared_ptr<const Graph> branch = graph.bodies[static_cast<std::size_t>(place)];
    TROUPE_RETURN_IF_ERROR(Inliner(graph, step, *branch, steps).Run());
    inlined = true;
  }
  graph.steps = std::move(steps);
  if (inlined) TROUPE_RETURN_IF_ERROR(SortSteps(graph));
  return inlined;
}

}  // namespace troupe::gpu

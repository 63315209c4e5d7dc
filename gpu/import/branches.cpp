// If steps whose condition is a constant: one branch becomes steps of the graph, the other is forgotten.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/import/onnx_node.hpp"
#include "gpu/import/passes.hpp"
#include "gpu/import/sequences.hpp"
#include "gpu/import/step_order.hpp"
#include "gpu/import/subgraphs.hpp"
#include "gpu/ops/control_flow.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {
namespace {

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
    for (const proto::Subgraph::Capture& capture : branch_.captures)
      names_[capture.name()] = step_.inputs(static_cast<int>(capture.input()));
    const auto named =
        std::ranges::find_if(step_.outputs(), [](const std::string& name) { return !name.empty(); });
    const std::string prefix = absl::StrCat(named == step_.outputs().end() ? step_.name() : *named, "/");
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
    if (const auto inside = SubgraphsOf(branch_, inner); !inside.empty())
      PlaceSubgraphs(inside, step, graph_);
    return step;
  }

  Graph& graph_;
  const proto::Step& step_;
  const Graph& branch_;
  std::vector<proto::Step>& out_;
  absl::flat_hash_map<std::string, std::string> names_;  // of the branch's values -> of the graph's
};

// True: there was one.
absl::StatusOr<bool> InlineBranches(Graph& graph) {
  bool inlined = false;
  std::vector<proto::Step> steps;
  for (proto::Step& step : graph.steps) {
    const int condition = step.op() == "If" ? ConditionOf(graph, step) : -1;
    if (condition < 0) {
      steps.push_back(std::move(step));
      continue;
    }
    const auto branches = SubgraphsOf(graph, step);
    TROUPE_RETURN_IF_ERROR(Inliner(graph, step, *branches[condition == 1 ? 0 : 1], steps).Run());
    inlined = true;
  }
  graph.steps = std::move(steps);
  if (inlined) TROUPE_RETURN_IF_ERROR(SortSteps(graph));
  return inlined;
}

}  // namespace

// A branch that is chosen may compute the condition of the next, or make a sequence, whose length may be a condition.
absl::Status FoldAndInline(Graph& graph, const ImportOptions& options, FoldBudget& budget) {
  for (bool changed = true; changed;) {
    TROUPE_RETURN_IF_ERROR(FoldConstants(graph, options, budget));
    TROUPE_ASSIGN_OR_RETURN(const bool inlined, InlineBranches(graph));
    TROUPE_ASSIGN_OR_RETURN(const bool resolved, ResolveSequences(graph));
    changed = inlined || resolved;
  }
  return absl::OkStatus();
}

}  // namespace troupe::gpu

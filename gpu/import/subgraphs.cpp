#include "gpu/import/subgraphs.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/import/onnx_node.hpp"
#include "gpu/import/passes.hpp"
#include "gpu/import/step_order.hpp"
#include "gpu/ops/control_flow.hpp"

namespace troupe::gpu {
namespace {

// Attributes that hold the subgraphs of an operator, in the order of Step.subgraphs.
std::vector<std::string> AttributesOf(const proto::Step& step) {
  if (step.op() == "If") return {"then_branch", "else_branch"};
  return {"body"};
}

// Values that a subgraph reads and does not make, in the order in which it reads them.
std::vector<std::string> OuterValues(const Graph& subgraph) {
  absl::flat_hash_set<std::string> known;
  for (const proto::TensorSpec& input : subgraph.inputs) known.insert(input.name());
  for (const auto& [name, constant] : subgraph.constants) known.insert(name);
  for (const proto::Step& step : subgraph.steps)
    for (const std::string& output : step.outputs()) known.insert(output);
  std::vector<std::string> outer;
  const auto read = [&](const std::string& name) {
    if (!name.empty() && known.insert(name).second) outer.push_back(name);
  };
  for (const proto::Step& step : subgraph.steps)
    for (const std::string& input : step.inputs()) read(input);
  for (const proto::TensorSpec& output : subgraph.outputs) read(output.name());
  return outer;
}

// The step's inputs behind its own: each outer value once, whichever subgraphs read it.
class Captures {
 public:
  explicit Captures(proto::Step& step) : step_(step) {
    for (int i = 0; i < step.inputs_size(); ++i)
      if (!step.inputs(i).empty()) places_.try_emplace(step.inputs(i), static_cast<std::uint32_t>(i));
  }
  std::uint32_t PlaceOf(const std::string& outer) {
    const auto [place, added] = places_.try_emplace(outer, static_cast<std::uint32_t>(step_.inputs_size()));
    if (added) step_.add_inputs(outer);
    return place->second;
  }

 private:
  proto::Step& step_;
  absl::flat_hash_map<std::string, std::uint32_t> places_;
};

proto::Subgraph::Capture MakeCapture(const std::string& name, std::uint32_t input) {
  proto::Subgraph::Capture capture;
  capture.set_name(name);
  capture.set_input(input);
  return capture;
}

std::size_t OwnInputsOf(const proto::Step& step, const Graph& first) {
  return step.op() == "If" ? 1 : first.inputs.size();
}

// Sorted as the operator has them, with names.
absl::StatusOr<std::vector<std::shared_ptr<Graph>>> TakeSubgraphs(const proto::Step& step,
                                                                  NamedSubgraphs& subgraphs) {
  const std::string label = StepLabel(step);
  const std::vector<std::string> wanted = AttributesOf(step);
  std::vector<std::shared_ptr<Graph>> sorted(wanted.size());
  for (auto& [name, subgraph] : subgraphs) {
    const auto place = std::ranges::find(wanted, name);
    if (place == wanted.end())
      return absl::InvalidArgumentError(absl::StrCat(label, " has the unknown graph '", name, "'"));
    auto& slot = sorted[static_cast<std::size_t>(place - wanted.begin())];
    if (slot != nullptr)
      return absl::InvalidArgumentError(absl::StrCat(label, " has two graphs '", name, "'"));
    for (const proto::TensorSpec& output : subgraph->outputs)
      if (output.name().empty())
        return absl::InvalidArgumentError(absl::StrCat(label, ": an output of its ", name, " has no name"));
    slot = std::move(subgraph);
  }
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (sorted[i] == nullptr)
      return absl::InvalidArgumentError(absl::StrCat(label, " must have the graph '", wanted[i], "'"));
  return sorted;
}

// Drops captures that the subgraph does not read.
void PruneCaptures(Graph& subgraph) {
  const UseCounts uses = CountUses(subgraph);
  std::erase_if(subgraph.captures, [&](const auto& capture) { return !uses.contains(capture.name()); });
}

absl::Status Simplify(const proto::Step& step, const Graph& graph, Graph& subgraph,
                      const ImportOptions& options, FoldBudget& budget) {
  std::vector<proto::Subgraph::Capture> left;
  for (const proto::Subgraph::Capture& capture : subgraph.captures) {
    const auto constant = graph.constants.find(step.inputs(static_cast<int>(capture.input())));
    if (constant == graph.constants.end())
      left.push_back(capture);
    else
      subgraph.constants.emplace(capture.name(), constant->second);
  }
  subgraph.captures = std::move(left);
  EliminateDeadSteps(subgraph);
  EliminateIdentities(subgraph);
  TROUPE_RETURN_IF_ERROR(FoldAndInline(subgraph, options, budget));
  EliminateIdentities(subgraph);
  EliminateDeadSteps(subgraph);
  TROUPE_RETURN_IF_ERROR(SimplifySubgraphs(subgraph, options, budget));
  EliminateDeadSteps(subgraph);
  PruneCaptures(subgraph);
  return absl::OkStatus();
}

// Gives the step the inputs that its subgraphs still capture.
void RebuildInputs(const std::vector<std::shared_ptr<Graph>>& subgraphs, proto::Step& step) {
  const proto::Step before = step;
  const auto own = static_cast<int>(OwnInputsOf(step, *subgraphs[0]));
  step.mutable_inputs()->DeleteSubrange(own, step.inputs_size() - own);
  Captures captures(step);
  for (const auto& subgraph : subgraphs)
    for (proto::Subgraph::Capture& capture : subgraph->captures)
      capture.set_input(captures.PlaceOf(before.inputs(static_cast<int>(capture.input()))));
}

// Makes constants of the subgraph constants of the graph, and captures of them.
absl::Status HoistConstants(const std::string& prefix, proto::Step& step, Graph& subgraph, Graph& graph) {
  Captures captures(step);
  absl::flat_hash_set<std::string> hoisted;
  const auto hoist = [&](const std::string& name) -> absl::Status {
    const auto constant = subgraph.constants.find(name);
    if (constant == subgraph.constants.end() || !hoisted.insert(name).second) return absl::OkStatus();
    const std::string outer = absl::StrCat(prefix, name);
    if (!graph.constants.try_emplace(outer, constant->second).second)
      return absl::InvalidArgumentError(absl::StrCat(StepLabel(step), ": the name '", outer, "' is taken"));
    subgraph.captures.push_back(MakeCapture(name, captures.PlaceOf(outer)));
    return absl::OkStatus();
  };
  for (const proto::Step& inner : subgraph.steps)
    for (const std::string& input : inner.inputs()) TROUPE_RETURN_IF_ERROR(hoist(input));
  for (const proto::TensorSpec& output : subgraph.outputs) TROUPE_RETURN_IF_ERROR(hoist(output.name()));
  return absl::OkStatus();
}

void Write(Graph& from, proto::Subgraph& to) {
  for (const proto::TensorSpec& input : from.inputs) to.add_inputs(input.name());
  for (const proto::Subgraph::Capture& capture : from.captures) *to.add_captures() = capture;
  for (proto::Step& step : from.steps) *to.add_steps() = std::move(step);
  for (const proto::TensorSpec& output : from.outputs) to.add_outputs(output.name());
}

absl::Status Seal(proto::Step& step, Graph& graph) {
  const auto subgraphs = SubgraphsOf(graph, step);
  const std::vector<std::string> names = AttributesOf(step);
  // Outputs are the graph's own names, so what begins with one is this step's.
  const auto named =
      std::ranges::find_if(step.outputs(), [](const std::string& name) { return !name.empty(); });
  if (named == step.outputs().end())
    return absl::InvalidArgumentError(absl::StrCat(StepLabel(step), " has no output with a name"));
  for (std::size_t i = 0; i < subgraphs.size(); ++i) {
    TROUPE_RETURN_IF_ERROR(SealSubgraphs(*subgraphs[i]));
    TROUPE_RETURN_IF_ERROR(
        HoistConstants(absl::StrCat(*named, "/", names[i], "/"), step, *subgraphs[i], graph));
    Write(*subgraphs[i], *step.add_subgraphs());
  }
  auto& attributes = *step.mutable_attributes();
  for (int i = attributes.size() - 1; i >= 0; --i)
    if (attributes[i].name() == kSubgraphPlaces) attributes.DeleteSubrange(i, 1);
  return CheckSubgraphs(step);
}

}  // namespace

std::vector<std::shared_ptr<Graph>> SubgraphsOf(const Graph& graph, const proto::Step& step) {
  std::vector<std::shared_ptr<Graph>> subgraphs;
  // A file may write the attribute at any other step, where it says nothing; AddControlStep refuses it at these.
  if (!IsControlFlow(step.op())) return subgraphs;
  for (const std::int64_t place : StepContext{step}.Ints(kSubgraphPlaces))
    subgraphs.push_back(graph.subgraphs[static_cast<std::size_t>(place)]);
  return subgraphs;
}

void PlaceSubgraphs(const std::vector<std::shared_ptr<Graph>>& subgraphs, proto::Step& step, Graph& graph) {
  proto::Attribute* places = nullptr;
  for (proto::Attribute& attribute : *step.mutable_attributes())
    if (attribute.name() == kSubgraphPlaces) places = &attribute;
  if (places == nullptr) places = step.add_attributes();
  places->set_name(kSubgraphPlaces);
  places->mutable_ints()->clear_values();
  for (const auto& subgraph : subgraphs) {
    places->mutable_ints()->add_values(static_cast<std::int64_t>(graph.subgraphs.size()));
    graph.subgraphs.push_back(subgraph);
  }
}

absl::Status AddControlStep(proto::Step step, NamedSubgraphs named, Graph& graph) {
  const std::string label = StepLabel(step);
  TROUPE_ASSIGN_OR_RETURN(const auto subgraphs, TakeSubgraphs(step, named));
  if (StepContext{step}.Find(kSubgraphPlaces) != nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat(label, " has the unknown attribute '", kSubgraphPlaces, "'"));
  const std::size_t own = OwnInputsOf(step, *subgraphs[0]);
  if (static_cast<std::size_t>(step.inputs_size()) > own || (step.op() == "If" && step.inputs_size() != 1))
    return absl::InvalidArgumentError(
        absl::StrCat(label, " has ", step.inputs_size(), " inputs, expected ", own, " for its graphs"));
  // Captures stand behind the operator's own inputs, of which the last may be left out.
  while (static_cast<std::size_t>(step.inputs_size()) < own) step.add_inputs("");
  Captures captures(step);
  for (const auto& subgraph : subgraphs) {
    if (step.op() == "If" && (!subgraph->inputs.empty() ||
                              subgraph->outputs.size() != static_cast<std::size_t>(step.outputs_size())))
      return absl::InvalidArgumentError(absl::StrCat(
          label, " has ", step.outputs_size(), " outputs, and a branch with ", subgraph->inputs.size(),
          " inputs and ", subgraph->outputs.size(), " outputs; a branch has no inputs and as many outputs"));
    for (const std::string& value : OuterValues(*subgraph))
      subgraph->captures.push_back(MakeCapture(value, captures.PlaceOf(value)));
    if (const absl::Status status = SortSteps(*subgraph); !status.ok())
      return absl::Status(status.code(), absl::StrCat(label, ": in its graph, ", status.message()));
  }
  PlaceSubgraphs(subgraphs, step, graph);
  graph.steps.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status SimplifySubgraphs(Graph& graph, const ImportOptions& options, FoldBudget& budget) {
  for (proto::Step& step : graph.steps) {
    const auto subgraphs = SubgraphsOf(graph, step);
    if (subgraphs.empty()) continue;
    for (const auto& subgraph : subgraphs)
      TROUPE_RETURN_IF_ERROR(Simplify(step, graph, *subgraph, options, budget));
    RebuildInputs(subgraphs, step);
  }
  return absl::OkStatus();
}

absl::Status SealSubgraphs(Graph& graph) {
  bool any = false;
  for (proto::Step& step : graph.steps) {
    if (!IsControlFlow(step.op())) continue;
    any = true;
    TROUPE_RETURN_IF_ERROR(Seal(step, graph));
  }
  graph.subgraphs.clear();
  // A hoisted constant may have the name of a value.
  return any ? SortSteps(graph) : absl::OkStatus();
}

}  // namespace troupe::gpu

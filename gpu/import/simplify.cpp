// Passes that only remove: what no output needs, and what only renames.
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "gpu/import/passes.hpp"

namespace troupe::gpu {
namespace {

// Outputs after the first are optional in ONNX; a shorter list leaves the last ones out.
bool HasOptionalOutputs(const std::string& op) {
  return op == "MaxPool" || op == "Dropout" || op == "BatchNormalization" || op == "LayerNormalization" ||
         op == "Attention" || op == "SimplifiedLayerNormalization" || op == "com.microsoft.Attention" ||
         op == "com.microsoft.EmbedLayerNormalization" || op == "com.microsoft.GroupQueryAttention" ||
         op == "com.microsoft.MultiHeadAttention";
}

// Dropout trains only when its third input (opset 12) says so; a constant true or an unknown one keeps it.
bool IsInferenceDropout(const Graph& graph, const proto::Step& step) {
  if (step.op() != "Dropout" || step.outputs_size() != 1) return false;
  if (step.inputs_size() < 3 || step.inputs(2).empty()) return true;
  const auto training = graph.constants.find(step.inputs(2));
  return training != graph.constants.end() && training->second.data->size() == 1 &&
         (*training->second.data)[0] == 0;
}

bool OnlyRenames(const Graph& graph, const proto::Step& step) {
  if (step.inputs_size() == 0 || step.inputs(0).empty() || step.outputs_size() != 1) return false;
  if (step.op() == "Identity") return step.inputs_size() == 1;
  return IsInferenceDropout(graph, step);
}

void Rename(std::string& name, const absl::flat_hash_map<std::string, std::string>& names) {
  if (const auto renamed = names.find(name); renamed != names.end()) name = renamed->second;
}

}  // namespace

UseCounts CountUses(const Graph& graph) {
  UseCounts uses;
  for (const proto::Step& step : graph.steps)
    for (const std::string& input : step.inputs())
      if (!input.empty()) ++uses[input];
  for (const proto::TensorSpec& output : graph.outputs) ++uses[output.name()];
  return uses;
}

bool IsOutput(const Graph& graph, const std::string& value) {
  for (const proto::TensorSpec& output : graph.outputs)
    if (output.name() == value) return true;
  return false;
}

void EliminateDeadSteps(Graph& graph) {
  absl::flat_hash_set<std::string> needed;
  for (const proto::TensorSpec& output : graph.outputs) needed.insert(output.name());
  std::vector<proto::Step> live;
  for (auto step = graph.steps.rbegin(); step != graph.steps.rend(); ++step) {
    bool used = false;
    for (const std::string& output : step->outputs()) used |= needed.contains(output);
    if (!used) continue;
    if (HasOptionalOutputs(step->op()))
      while (step->outputs_size() > 1 && !needed.contains(step->outputs(step->outputs_size() - 1)))
        step->mutable_outputs()->RemoveLast();
    for (const std::string& input : step->inputs()) needed.insert(input);
    live.push_back(std::move(*step));
  }
  graph.steps.assign(std::make_move_iterator(live.rbegin()), std::make_move_iterator(live.rend()));
  absl::erase_if(graph.constants, [&](const auto& entry) { return !needed.contains(entry.first); });
}

void EliminateIdentities(Graph& graph) {
  absl::flat_hash_map<std::string, std::string> names;  // of a removed step's output -> what stands for it
  absl::flat_hash_map<std::string, std::size_t> producers;
  std::vector<proto::Step> left;
  for (proto::Step& step : graph.steps) {
    for (std::string& input : *step.mutable_inputs()) Rename(input, names);
    if (!OnlyRenames(graph, step)) {
      for (const std::string& output : step.outputs()) producers[output] = left.size();
      left.push_back(std::move(step));
      continue;
    }
    const std::string input = step.inputs(0);
    const std::string output = step.outputs(0);
    if (!IsOutput(graph, output)) {
      names[output] = input;
      continue;
    }
    const auto producer = producers.find(input);
    if (producer == producers.end() || IsOutput(graph, input)) {
      step.set_op("Identity");
      step.clear_attributes();
      step.mutable_inputs()->DeleteSubrange(1, step.inputs_size() - 1);
      left.push_back(std::move(step));
      continue;
    }
    // The producer makes the output itself; steps since then that read it under its old name follow.
    for (std::size_t i = producer->second; i < left.size(); ++i) {
      for (std::string& name : *left[i].mutable_inputs())
        if (name == input) name = output;
      for (std::string& name : *left[i].mutable_outputs())
        if (name == input) name = output;
    }
    producers[output] = producer->second;
    names[input] = output;
    for (auto& [from, to] : names)
      if (to == input) to = output;
  }
  graph.steps = std::move(left);
}

}  // namespace troupe::gpu

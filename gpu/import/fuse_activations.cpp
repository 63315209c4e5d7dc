#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "gpu/import/passes.hpp"

namespace troupe::gpu {
namespace {

struct Activation {
  float alpha = 0;
  float beta = 0;
};

// A bound of Clip (opset 11 on) as an input: absent, or a constant scalar.
bool Bound(const Graph& graph, const proto::Step& step, int input, float& value) {
  if (input >= step.inputs_size() || step.inputs(input).empty()) return true;
  const auto constant = graph.constants.find(step.inputs(input));
  if (constant == graph.constants.end() || constant->second.type != proto::FP32 ||
      constant->second.data->size() != sizeof(float))
    return false;
  std::memcpy(&value, constant->second.data->data(), sizeof(float));
  return true;
}

std::optional<Activation> ActivationOf(const Graph& graph, const proto::Step& step) {
  const StepContext context{step, graph.opset};
  const std::string& op = step.op();
  if (step.outputs_size() != 1 || step.inputs_size() == 0) return std::nullopt;
  if (op == "Clip") {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    Activation clip{-kInfinity, kInfinity};
    if (graph.opset < 11)
      return Activation{context.Float("min", -kInfinity), context.Float("max", kInfinity)};
    if (!Bound(graph, step, 1, clip.alpha) || !Bound(graph, step, 2, clip.beta)) return std::nullopt;
    return clip;
  }
  if (step.inputs_size() != 1) return std::nullopt;
  if (op == "LeakyRelu") return Activation{context.Float("alpha", 0.01F), 0};
  if (op == "com.microsoft.QuickGelu") return Activation{context.Float("alpha", 1.702F), 0};
  if (op == "Relu" || op == "Sigmoid" || op == "Tanh" || op == "HardSwish") return Activation{};
  return std::nullopt;
}

// Fused kernels compute in FP32; `step` is one when a weight or what is known of its output says so.
bool IsFloat(const Graph& graph, const ValueInfos& values, const proto::Step& step) {
  if (const auto known = values.find(step.outputs(0)); known != values.end())
    return known->second.type == proto::FP32 && !known->second.bounded;
  if (step.op() == "Add" || step.inputs_size() < 2) return false;
  const auto weight = graph.constants.find(step.inputs(1));
  return weight != graph.constants.end() && weight->second.type == proto::FP32;
}

}  // namespace

void FuseActivations(Graph& graph, const ValueInfos& values) {
  UseCounts uses = CountUses(graph);
  absl::flat_hash_map<std::string, std::size_t> producers;
  std::vector<proto::Step> left;
  for (proto::Step& step : graph.steps) {
    const std::optional<Activation> activation = ActivationOf(graph, step);
    const auto found = activation ? producers.find(step.inputs(0)) : producers.end();
    if (found != producers.end() && uses[step.inputs(0)] == 1) {
      proto::Step& producer = left[found->second];
      const Operator* op = FindOperator(producer.op(), graph.opset);
      const bool copies = producer.op() == "Sum" && producer.inputs_size() < 2;
      if (op != nullptr && !copies && op->fuses_activation && producer.activation().empty() &&
          producer.outputs_size() == 1 && IsFloat(graph, values, producer)) {
        producer.set_activation(step.op());
        producer.set_activation_alpha(activation->alpha);
        producer.set_activation_beta(activation->beta);
        *producer.mutable_outputs(0) = step.outputs(0);
        continue;
      }
    }
    if (step.outputs_size() > 0) producers[step.outputs(0)] = left.size();
    left.push_back(std::move(step));
  }
  graph.steps = std::move(left);
}

}  // namespace troupe::gpu

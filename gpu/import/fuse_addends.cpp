// An addition that follows a matrix product or a convolution costs a pass over memory; inside its kernel it
// is free.
#include <optional>
#include <utility>

#include "gpu/import/passes.hpp"

namespace troupe::gpu {
namespace {

bool TakesAddend(const proto::Step& step, int opset) {
  const Operator* op = FindOperator(step.op(), opset);
  return op != nullptr && op->fuses_addend && step.activation().empty() && step.outputs_size() == 1;
}

class Fuser {
 public:
  Fuser(Graph& graph, const ValueInfos& values) : graph_(graph), values_(values), uses_(CountUses(graph)) {}

  void Run() {
    steps_.reserve(graph_.steps.size());
    for (proto::Step& step : graph_.steps) {
      const bool adds = step.inputs_size() == 2 && step.outputs_size() == 1 && step.activation().empty() &&
                        (step.op() == "Add" || step.op() == "Sum");
      if (adds && (FuseBias(step) || FuseResidual(step))) continue;
      Append(std::move(step));
    }
    graph_.steps.clear();
    for (std::optional<proto::Step>& step : steps_)
      if (step) graph_.steps.push_back(*std::move(step));
  }

 private:
  void Append(proto::Step step) {
    if (step.outputs_size() > 0) producers_[step.outputs(0)] = steps_.size();
    steps_.emplace_back(std::move(step));
  }

  // The step that makes `value` for one reader only, when it is a `op` that takes an addend; else null.
  proto::Step* Producer(const std::string& value, const std::string& op) {
    const auto found = producers_.find(value);
    if (found == producers_.end() || uses_[value] != 1) return nullptr;
    proto::Step& step = *steps_[found->second];
    return step.op() == op && TakesAddend(step, graph_.opset) ? &step : nullptr;
  }

  // MatMul by a constant matrix, then a constant vector as long as its rows.
  bool FuseBias(const proto::Step& add) {
    for (int i = 0; i < 2; ++i) {
      const auto bias = graph_.constants.find(add.inputs(1 - i));
      proto::Step* product = Producer(add.inputs(i), "MatMul");
      if (product == nullptr || product->inputs_size() != 2 || bias == graph_.constants.end()) continue;
      const auto matrix = graph_.constants.find(product->inputs(1));
      if (matrix == graph_.constants.end() || matrix->second.shape.size() != 2 ||
          matrix->second.type != proto::FP32 || bias->second.type != proto::FP32 ||
          bias->second.shape != Shape{matrix->second.shape[1]})
        continue;
      product->add_inputs(bias->first);
      const auto place = producers_.extract(add.inputs(i)).mapped();
      producers_[add.outputs(0)] = place;
      *product->mutable_outputs(0) = add.outputs(0);
      return true;
    }
    return false;
  }

  // Shapes are equal for every choice of the dynamic dimensions: they have none, or one that both share.
  bool SameShape(const std::string& a, const std::string& b) const {
    const auto left = values_.find(a), right = values_.find(b);
    if (left == values_.end() || right == values_.end() || left->second.type != proto::FP32 ||
        right->second.type != proto::FP32 || left->second.bounded || right->second.bounded)
      return false;
    if (left->second.shape != right->second.shape) return false;
    for (std::int64_t size : left->second.shape)
      if (size < 0 && graph_.open.symbols() > 1) return false;
    return true;
  }

  // A convolution's output and another value of its shape. The convolution moves to where both are there.
  bool FuseResidual(const proto::Step& add) {
    int chosen = -1;
    for (int i = 0; i < 2; ++i) {
      const proto::Step* conv = Producer(add.inputs(i), "Conv");
      if (conv == nullptr || conv->inputs_size() < 2 || conv->inputs_size() > 3) continue;
      if (graph_.constants.contains(add.inputs(1 - i)) || !SameShape(add.inputs(0), add.inputs(1))) continue;
      // Of two, the later one: the other's output is then old enough to be in memory.
      if (chosen < 0 || producers_[add.inputs(i)] > producers_[add.inputs(chosen)]) chosen = i;
    }
    if (chosen < 0) return false;
    const auto place = producers_.extract(add.inputs(chosen)).mapped();
    proto::Step conv = *std::exchange(steps_[place], std::nullopt);
    while (conv.inputs_size() < 3) conv.add_inputs();
    conv.add_inputs(add.inputs(1 - chosen));
    *conv.mutable_outputs(0) = add.outputs(0);
    Append(std::move(conv));
    return true;
  }

  Graph& graph_;
  const ValueInfos& values_;
  UseCounts uses_;
  std::vector<std::optional<proto::Step>> steps_;  // a hole where a step moved away
  absl::flat_hash_map<std::string, std::size_t> producers_;
};

}  // namespace

void FuseAddends(Graph& graph, const ValueInfos& values) {
  Fuser(graph, values).Run();
}

}  // namespace troupe::gpu

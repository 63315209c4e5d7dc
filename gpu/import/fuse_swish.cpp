#include <utility>

#include "gpu/import/passes.hpp"

namespace troupe::gpu {
namespace {

constexpr char kSwish[] = "com.microsoft.QuickGelu";

// Whether the product is x * Sigmoid(x), and its factor of this index the result of `sigmoid`.
bool IsSwish(const proto::Step& product, int factor, const proto::Step& sigmoid) {
  return sigmoid.op() == "Sigmoid" && sigmoid.activation().empty() && sigmoid.inputs_size() == 1 &&
         sigmoid.inputs(0) == product.inputs(1 - factor);
}

bool IsPlainProduct(const proto::Step& step, const ValueInfos& values) {
  if (step.op() != "Mul" || step.inputs_size() != 2 || step.outputs_size() != 1) return false;
  const auto known = values.find(step.outputs(0));
  return step.activation().empty() && known != values.end() && known->second.type == proto::FP32 &&
         !known->second.bounded;
}

// Of the factor that is not the Sigmoid.
void MakeSwish(proto::Step& product, int sigmoid) {
  product.set_op(kSwish);
  product.mutable_inputs()->SwapElements(0, 1 - sigmoid);
  product.mutable_inputs()->RemoveLast();
  proto::Attribute& alpha = *product.add_attributes();
  alpha.set_name("alpha");
  alpha.set_f(1);
}

}  // namespace

void FuseSwish(Graph& graph, const ValueInfos& values) {
  if (FindOperator(kSwish, graph.opset) == nullptr) return;
  absl::flat_hash_map<std::string, const proto::Step*> producers;
  for (proto::Step& step : graph.steps) {
    for (int factor = 0; factor < 2 && IsPlainProduct(step, values); ++factor) {
      const auto found = producers.find(step.inputs(factor));
      if (found != producers.end() && IsSwish(step, factor, *found->second)) MakeSwish(step, factor);
    }
    if (step.outputs_size() > 0) producers[step.outputs(0)] = &step;
  }
  EliminateDeadSteps(graph);
}

}  // namespace troupe::gpu

#include "gpu/import/fused_nodes.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/import/onnx_node.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {
namespace {

using NodeNames = std::vector<std::string>;

constexpr std::int64_t kOnnxFloat = 1;  // FLOAT, as the attribute `to` of Cast names it

// Writes the chain of one step into the graph.
class Chain {
 public:
  Chain(const proto::Step& from, Graph& graph) : from_(from), graph_(graph), context_{from, graph.opset} {}

  [[nodiscard]] const proto::Step& from() const { return from_; }
  [[nodiscard]] const StepContext& context() const { return context_; }
  [[nodiscard]] bool newer_than(int opset) const { return graph_.opset > opset; }
  [[nodiscard]] bool Has(int input) const {
    return input < from_.inputs_size() && !from_.inputs(input).empty();
  }
  [[nodiscard]] std::string Input(int input) const { return Has(input) ? from_.inputs(input) : ""; }
  // The name of an output that the file wants; else "".
  [[nodiscard]] std::string Output(int output) const {
    return output < from_.outputs_size() ? from_.outputs(output) : "";
  }

  // A name for a value inside the chain.
  [[nodiscard]] std::string Inner(std::string_view what) const {
    const auto named = std::ranges::find_if(from_.outputs(), [](const auto& name) { return !name.empty(); });
    return absl::StrCat(named == from_.outputs().end() ? from_.name() : *named, "/", std::string(what));
  }

  // The next step; its first output is `output`, or a value inside the chain, and is returned.
  std::string Add(std::string_view op, const NodeNames& inputs, std::string output = "") {
    proto::Step& step = graph_.steps.emplace_back();
    step.set_op(std::string(op));
    step.set_name(from_.name());
    for (const std::string& input : inputs) step.add_inputs(input);
    while (step.inputs_size() > 0 && step.inputs(step.inputs_size() - 1).empty())
      step.mutable_inputs()->RemoveLast();
    if (output.empty()) output = Inner(absl::StrCat(std::string(op), "_", graph_.steps.size()));
    step.add_outputs(output);
    return output;
  }
  [[nodiscard]] proto::Step& last() { return graph_.steps.back(); }

  void SetInt(std::string_view name, std::int64_t value) { NewAttribute(name).set_i(value); }
  void SetFloat(std::string_view name, float value) { NewAttribute(name).set_f(value); }
  void SetText(std::string_view name, const std::string& value) { NewAttribute(name).set_s(value); }
  // Gives the last step an attribute of the fused one, when it is there.
  void Keep(std::string_view name, std::string_view as) {
    const proto::Attribute* given = context_.Find(name);
    if (given == nullptr) return;
    proto::Attribute& kept = *last().add_attributes();
    kept = *given;
    kept.set_name(std::string(as));
  }

  absl::StatusOr<std::string> Constant(std::string_view what, proto::DataType type,
                                       const std::vector<std::int64_t>& shape, const void* data,
                                       std::size_t size) {
    std::string name = Inner(what);
    gpu::Constant constant{type, shape, HoldBytes(data, size)};
    if (!graph_.constants.try_emplace(name, std::move(constant)).second)
      return context_.Error(absl::StrCat("the name '", name, "' is taken"));
    return name;
  }

 private:
  proto::Attribute& NewAttribute(std::string_view name) {
    proto::Attribute& attribute = *last().add_attributes();
    attribute.set_name(std::string(name));
    return attribute;
  }

  const proto::Step& from_;
  Graph& graph_;
  StepContext context_;
};

// --- Activations behind a product or a convolution ---

// What stands in the attribute `activation`, with the parameters that are given for it.
absl::Status Activate(Chain& chain, const std::string& value, const std::string& activation,
                      const std::vector<float>& parameters) {
  struct Known {
    std::string_view name;
    std::vector<std::string_view> attributes;
  };
  static const std::vector<Known> kKnown = {
      {"Relu", {}},
      {"Tanh", {}},
      {"Sigmoid", {}},
      {"Softplus", {}},
      {"Softsign", {}},
      {"HardSwish", {}},
      {"LeakyRelu", {"alpha"}},
      {"Elu", {"alpha"}},
      {"ThresholdedRelu", {"alpha"}},
      {"HardSigmoid", {"alpha", "beta"}},
      {"Selu", {"alpha", "gamma"}},
      {"Clip", {"min", "max"}},
  };
  const auto known = std::ranges::find(kKnown, activation, &Known::name);
  if (known == kKnown.end()) {
    const absl::Status error = chain.context().Error(
        absl::StrCat("activation '", activation, "' is not supported; export the model without this fusion"));
    return absl::UnimplementedError(error.message());
  }
  if (parameters.size() > known->attributes.size() ||
      (activation == "Clip" && parameters.size() != known->attributes.size())) {
    return chain.context().Error(absl::StrCat("activation ", activation, " has ", parameters.size(),
                                              " parameters, wants ", known->attributes.size()));
  }
  NodeNames inputs = {value};
  const bool bounds_are_inputs = activation == "Clip" && chain.newer_than(10);
  for (std::size_t i = 0; bounds_are_inputs && i < parameters.size(); ++i) {
    TROUPE_ASSIGN_OR_RETURN(std::string bound, chain.Constant(known->attributes[i], proto::FP32, {},
                                                              &parameters[i], sizeof(float)));
    inputs.push_back(std::move(bound));
  }
  chain.Add(activation, inputs, chain.Output(0));
  for (std::size_t i = 0; !bounds_are_inputs && i < parameters.size(); ++i)
    chain.SetFloat(known->attributes[i], parameters[i]);
  return absl::OkStatus();
}

absl::Status SpellConv(Chain& chain) {
  const bool sums = chain.Has(3);
  const std::string activation = chain.context().Text("activation", "");
  if (activation.empty() && chain.context().Find("activation_params") != nullptr)
    return chain.context().Error("has activation_params without an activation");
  const std::string plain = sums || !activation.empty() ? "" : chain.Output(0);
  std::string value = chain.Add("Conv", {chain.Input(0), chain.Input(1), chain.Input(2)}, plain);
  for (const char* name : {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"})
    chain.Keep(name, name);
  if (sums) value = chain.Add("Add", {value, chain.Input(3)}, activation.empty() ? chain.Output(0) : "");
  if (activation.empty()) return absl::OkStatus();
  std::vector<float> parameters;
  if (const proto::Attribute* given = chain.context().Find("activation_params"); given != nullptr) {
    if (!given->has_floats()) return chain.context().Error("activation_params must be a list of floats");
    parameters.assign(given->floats().values().begin(), given->floats().values().end());
  }
  return Activate(chain, value, activation, parameters);
}

absl::Status SpellGemm(Chain& chain) {
  const std::string activation = chain.context().Text("activation", "");
  const std::string value = chain.Add("Gemm", {chain.Input(0), chain.Input(1), chain.Input(2)},
                                      activation.empty() ? chain.Output(0) : "");
  for (const char* name : {"alpha", "beta", "transA", "transB"}) chain.Keep(name, name);
  std::vector<float> parameters;
  for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"}) {
    const proto::Attribute* given = chain.context().Find(name);
    if (given == nullptr) continue;
    if (!given->has_f()) return chain.context().Error(absl::StrCat(name, " must be a float"));
    // Selu's second parameter is gamma, HardSigmoid's is beta.
    const std::string_view second = activation == "Selu" ? "activation_gamma" : "activation_beta";
    if (std::string_view(name) != "activation_alpha" &&
        (std::string_view(name) != second || parameters.empty())) {
      return chain.context().Error(absl::StrCat(name, " does not belong to the parameters of ", activation));
    }
    parameters.push_back(given->f());
  }
  if (activation.empty())
    return parameters.empty() ? absl::OkStatus()
                              : chain.context().Error("has activation_alpha without an activation");
  return Activate(chain, value, activation, parameters);
}

// --- Gelu ---

absl::Status SpellBiasGelu(Chain& chain) {
  chain.Add("Gelu", {chain.Add("Add", {chain.Input(0), chain.Input(1)})}, chain.Output(0));
  return absl::OkStatus();
}

absl::Status SpellGelu(Chain& chain) {
  chain.Add("Gelu", {chain.Input(0)}, chain.Output(0));
  return absl::OkStatus();
}

absl::Status SpellFastGelu(Chain& chain) {
  const std::string x = chain.Has(1) ? chain.Add("Add", {chain.Input(0), chain.Input(1)}) : chain.Input(0);
  chain.Add("Gelu", {x}, chain.Output(0));
  chain.SetText("approximate", "tanh");
  return absl::OkStatus();
}

// --- Layer normalisation of a sum ---

// The bias first: where it follows a product, it is added inside the product's kernel.
std::string SumOf(Chain& chain, int bias) {
  const std::string x =
      chain.Has(bias) ? chain.Add("Add", {chain.Input(0), chain.Input(bias)}) : chain.Input(0);
  return chain.Add("Add", {x, chain.Input(1)}, chain.Output(3));
}

void Normalize(Chain& chain, std::string_view op, const NodeNames& inputs) {
  chain.Add(op, inputs, chain.Output(0));
  chain.SetInt("axis", -1);
  chain.SetFloat("epsilon", chain.context().Float("epsilon", 1e-12F));
}

absl::Status SpellSkipLayerNorm(Chain& chain) {
  const std::string sum = SumOf(chain, 4);
  if (chain.Output(0).empty() && chain.Output(1).empty() && chain.Output(2).empty()) return absl::OkStatus();
  Normalize(chain, "LayerNormalization", {sum, chain.Input(2), chain.Input(3)});
  const int outputs = !chain.Output(2).empty() ? 3 : !chain.Output(1).empty() ? 2 : 1;
  for (int i = 1; i < outputs; ++i) chain.last().add_outputs(chain.Output(i));
  return absl::OkStatus();
}

absl::Status SpellSkipSimplified(Chain& chain) {
  if (!chain.Output(1).empty())
    return chain.context().Error(
        "output 1 (mean) is asked for, which this normalisation does not compute; export without it");
  const std::string sum = SumOf(chain, 3);
  if (chain.Output(0).empty() && chain.Output(2).empty()) return absl::OkStatus();
  Normalize(chain, "SimplifiedLayerNormalization", {sum, chain.Input(2)});
  if (!chain.Output(2).empty()) chain.last().add_outputs(chain.Output(2));
  return absl::OkStatus();
}

// --- Products of bytes, as floats ---

// (product as integers) * a_scale * b_scale + bias
absl::Status Dequantize(Chain& chain, const std::string& product, const std::string& a_scale, int b_scale,
                        int bias) {
  const std::string value = chain.Add("Cast", {product});
  chain.SetInt("to", kOnnxFloat);
  // One number: Reshape refuses more.
  const std::int64_t one = 1;
  TROUPE_ASSIGN_OR_RETURN(const std::string shape,
                          chain.Constant("one", proto::INT64, {1}, &one, sizeof(one)));
  const std::string scale = chain.Add("Mul", {chain.Add("Reshape", {a_scale, shape}), chain.Input(b_scale)});
  const std::string scaled = chain.Add("Mul", {value, scale}, chain.Has(bias) ? "" : chain.Output(0));
  if (chain.Has(bias)) chain.Add("Add", {scaled, chain.Input(bias)}, chain.Output(0));
  return absl::OkStatus();
}

absl::Status SpellDynamicQuantizeMatMul(Chain& chain) {
  const std::string a = chain.Add("DynamicQuantizeLinear", {chain.Input(0)});
  const std::string scale = absl::StrCat(a, "/scale");
  const std::string zero = absl::StrCat(a, "/zero");
  chain.last().add_outputs(scale);
  chain.last().add_outputs(zero);
  const std::string product = chain.Add("MatMulInteger", {a, chain.Input(1), zero, chain.Input(3)});
  return Dequantize(chain, product, scale, 2, 4);
}

absl::Status SpellMatMulIntegerToFloat(Chain& chain) {
  const std::string product =
      chain.Add("MatMulInteger", {chain.Input(0), chain.Input(1), chain.Input(4), chain.Input(5)});
  return Dequantize(chain, product, chain.Input(2), 3, 6);
}

// --- The table ---

struct Form {
  FusedNode node;
  int required;  // inputs that must be there
  int inputs;    // most
  int outputs;   // most
  absl::Status (*spell)(Chain&);
  std::vector<std::string_view> attributes;
};

const std::vector<Form>& Forms() {
  static const std::vector<Form> kForms = {
      {{"com.microsoft.BiasGelu", "Add, Gelu"}, 2, 2, 1, &SpellBiasGelu, {}},
      {{"com.microsoft.DynamicQuantizeMatMul", "DynamicQuantizeLinear, MatMulInteger, Mul, Add"},
       3,
       5,
       1,
       &SpellDynamicQuantizeMatMul,
       {}},
      {{"com.microsoft.FastGelu", "Add, Gelu (tanh)"}, 1, 2, 1, &SpellFastGelu, {}},
      {{"com.microsoft.FusedConv", "Conv, Add, the activation"},
       2,
       4,
       1,
       &SpellConv,
       {"activation", "activation_params", "auto_pad", "dilations", "group", "kernel_shape", "pads",
        "strides"}},
      {{"com.microsoft.FusedGemm", "Gemm, the activation"},
       2,
       3,
       1,
       &SpellGemm,
       {"activation", "activation_alpha", "activation_beta", "activation_gamma", "alpha", "beta", "transA",
        "transB"}},
      {{"com.microsoft.Gelu", "Gelu"}, 1, 1, 1, &SpellGelu, {}},
      {{"com.microsoft.MatMulIntegerToFloat", "MatMulInteger, Mul, Add"},
       4,
       7,
       1,
       &SpellMatMulIntegerToFloat,
       {}},
      {{"com.microsoft.SkipLayerNormalization", "Add, Add, LayerNormalization"},
       3,
       5,
       4,
       &SpellSkipLayerNorm,
       {"epsilon"}},
      {{"com.microsoft.SkipSimplifiedLayerNormalization", "Add, Add, SimplifiedLayerNormalization"},
       3,
       4,
       4,
       &SpellSkipSimplified,
       {"epsilon"}},
  };
  return kForms;
}

const Form* FindForm(std::string_view op) {
  const auto found = std::ranges::find(Forms(), op, [](const Form& form) { return form.node.op; });
  return found == Forms().end() ? nullptr : &*found;
}

absl::Status CheckForm(const Form& form, const Chain& chain) {
  const proto::Step& step = chain.from();
  const StepContext& context = chain.context();
  if (step.inputs_size() > form.inputs)
    return context.Error(
        absl::StrCat("has ", step.inputs_size(), " inputs, wants ", form.required, " to ", form.inputs));
  for (int i = 0; i < form.required; ++i)
    if (!chain.Has(i)) return context.Error(absl::StrCat("input ", i, " is required"));
  if (step.outputs_size() < 1 || step.outputs_size() > form.outputs)
    return context.Error(absl::StrCat("has ", step.outputs_size(), " outputs, wants 1 to ", form.outputs));
  if (form.outputs == 1 && step.outputs(0).empty()) return context.Error("its output has no name");
  for (const proto::Attribute& attribute : step.attributes()) {
    if (attribute.name() == "activation" && !attribute.has_s())
      return context.Error("activation must be a string");
    if (std::ranges::find(form.attributes, attribute.name()) != form.attributes.end()) continue;
    const absl::Status error = context.Error(
        absl::StrCat("attribute '", attribute.name(), "' is not supported; export the model without it"));
    return absl::UnimplementedError(error.message());
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const FusedNode> FusedNodes() {
  static const std::vector<FusedNode> kNodes = [] {
    std::vector<FusedNode> nodes;
    for (const Form& form : Forms()) nodes.push_back(form.node);
    return nodes;
  }();
  return kNodes;
}

bool IsFusedNode(std::string_view op) {
  return FindForm(op) != nullptr;
}

absl::Status AppendStep(proto::Step step, Graph& graph) {
  const Form* form = FindForm(step.op());
  if (form == nullptr) {
    graph.steps.push_back(std::move(step));
    return absl::OkStatus();
  }
  Chain chain(step, graph);
  TROUPE_RETURN_IF_ERROR(CheckForm(*form, chain));
  return form->spell(chain);
}

}  // namespace troupe::gpu

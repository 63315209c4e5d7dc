#include "gpu/import/onnx_reader.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "gpu/import/classic_models.hpp"
#include "gpu/import/functions.hpp"
#include "gpu/import/fused_nodes.hpp"
#include "gpu/import/onnx_node.hpp"
#include "gpu/import/onnx_tensor.hpp"
#include "gpu/import/step_order.hpp"
#include "gpu/import/subgraphs.hpp"
#include "gpu/import/weight_layout.hpp"
#include "gpu/ops/control_flow.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/operator.hpp"
#include "onnx/onnx_pb.h"

namespace troupe::gpu {
namespace {

absl::Status Parse(std::span<const std::byte> file, onnx::ModelProto& model) {
  if (file.empty()) return absl::InvalidArgumentError("the ONNX file is empty");
  if (file.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    return absl::InvalidArgumentError("an ONNX file has at most 2 GiB; save its weights as external data");
  if (!model.ParseFromArray(file.data(), static_cast<int>(file.size())))
    return absl::InvalidArgumentError(
        "this is not a valid ONNX file, or it is truncated, corrupt or nested too deeply");
  if (!model.has_graph()) return absl::InvalidArgumentError("the ONNX file has no graph");
  return absl::OkStatus();
}

absl::StatusOr<int> OpsetOf(const onnx::ModelProto& model) {
  std::int64_t opset = 0;
  for (const auto& import : model.opset_import())
    if (import.domain().empty() || import.domain() == "ai.onnx") opset = std::max(opset, import.version());
  if ((opset < kMinOpset || opset > kMaxOpset) && IsClassicOnly(model)) return kMaxOpset;
  if (opset == 0) return absl::InvalidArgumentError("the ONNX file does not say which opset it uses");
  if (opset < kMinOpset || opset > kMaxOpset)
    return absl::UnimplementedError(absl::StrCat("the model uses opset ", opset, "; supported are ",
                                                 kMinOpset, " to ", kMaxOpset,
                                                 ": export it again with one of these, or convert it with "
                                                 "onnx.version_converter"));
  return static_cast<int>(opset);
}

absl::StatusOr<proto::TensorSpec> SpecOf(const onnx::ValueInfoProto& value, const std::string& kind) {
  const std::string where = absl::StrCat(kind, " '", value.name(), "'");
  if (value.name().empty()) return absl::InvalidArgumentError(absl::StrCat("an ", kind, " has no name"));
  if (!value.type().has_tensor_type())
    return absl::UnimplementedError(
        absl::StrCat(where, " is not a tensor; sequences, maps and optionals are not supported"));
  proto::TensorSpec spec;
  spec.set_name(value.name());
  spec.set_type(DataTypeOfOnnx(value.type().tensor_type().elem_type()));
  if (spec.type() == proto::DATA_TYPE_UNSPECIFIED)
    return absl::UnimplementedError(
        absl::StrCat(where, " has element type ", OnnxTypeName(value.type().tensor_type().elem_type()),
                     ", which is not supported; export the model with another type"));
  Shape known;
  for (const auto& dim : value.type().tensor_type().shape().dim()) {
    if (dim.has_dim_value() && dim.dim_value() < -1)
      return absl::InvalidArgumentError(absl::StrCat(where, " has a negative dimension ", dim.dim_value()));
    const std::int64_t size = dim.has_dim_value() ? dim.dim_value() : -1;
    spec.add_shape(size);
    if (size >= 0) known.push_back(size);
  }
  if (auto count = CountElements(known); !count.ok())
    return absl::Status(count.status().code(), absl::StrCat(where, ": ", count.status().message()));
  return spec;
}

// The number of a trip and its condition are scalars here; a body may declare them as vectors of one element.
void GiveAsVector(const onnx::ValueInfoProto& declared, std::size_t input, Graph& body) {
  if (declared.type().tensor_type().shape().dim_size() != 1) return;
  const std::string& name = declared.name();
  const std::int64_t one = 1;
  body.inputs[input].set_name(name + "/scalar");
  body.constants[name + "/shape"] = {proto::INT64, {1}, HoldBytes(&one, sizeof(one))};
  proto::Step& step = body.steps.emplace_back();
  step.set_op("Reshape");
  step.set_name(name);
  step.add_inputs(name + "/scalar");
  step.add_inputs(name + "/shape");
  step.add_outputs(name);
}

// What was read of the whole model, graphs inside graphs included.
struct Totals {
  std::size_t nodes = 0;
  Bytes weights{};
};

// What is read of a graph before its steps: initialisers, then the inputs that no initialiser stands for,
// outputs.
class GraphReader {
 public:
  // `depth`: how many graphs this one lies in.
  GraphReader(onnx::GraphProto& from, const ImportOptions& options, int depth, Totals& totals, Graph& to)
      : from_(from), options_(options), depth_(depth), totals_(totals), to_(to) {}

  absl::Status Run() {
    TROUPE_RETURN_IF_ERROR(CountNodes());
    if (from_.sparse_initializer_size() > 0)
      return absl::UnimplementedError("the model has sparse initialisers, which are not supported");
    TROUPE_RETURN_IF_ERROR(ReadInitialisers());
    TROUPE_RETURN_IF_ERROR(ReadInterface());
    TROUPE_RETURN_IF_ERROR(ReadNodes());
    TROUPE_RETURN_IF_ERROR(SortSteps(to_));
    return ProduceOutputsBySteps();
  }

  // A graph inside a node: which of the values that it does not make exist is for the graph around it to say.
  absl::Status RunSubgraph() {
    TROUPE_RETURN_IF_ERROR(CountNodes());
    if (from_.sparse_initializer_size() > 0)
      return absl::UnimplementedError("a subgraph has sparse initialisers, which are not supported");
    TROUPE_RETURN_IF_ERROR(ReadInitialisers());
    for (const onnx::ValueInfoProto& input : from_.input()) {
      if (input.name().empty()) return absl::InvalidArgumentError("an input of a subgraph has no name");
      if (to_.constants.contains(input.name()))
        return absl::UnimplementedError(
            absl::StrCat("a subgraph has an initialiser for its input '", input.name(), "'"));
      to_.inputs.emplace_back().set_name(input.name());
    }
    for (const onnx::ValueInfoProto& output : from_.output())
      to_.outputs.emplace_back().set_name(output.name());
    return ReadNodes();
  }

 private:
  absl::Status CountNodes() {
    totals_.nodes += static_cast<std::size_t>(from_.node_size());
    if (totals_.nodes <= options_.max_nodes) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("the graph has ", totals_.nodes, " nodes; the limit is ", options_.max_nodes));
  }

  absl::Status ReadInitialisers() {
    for (onnx::TensorProto& tensor : *from_.mutable_initializer()) {
      if (tensor.name().empty()) return absl::InvalidArgumentError("an initialiser has no name");
      const std::string where = absl::StrCat("initialiser '", tensor.name(), "'");
      TROUPE_ASSIGN_OR_RETURN(Constant constant, TakeTensor(tensor, options_, where));
      TROUPE_RETURN_IF_ERROR(AddConstant(tensor.name(), std::move(constant)));
    }
    return absl::OkStatus();
  }

  absl::Status AddConstant(const std::string& name, Constant constant) {
    totals_.weights += Bytes(constant.data->size());
    if (totals_.weights > options_.max_weights)
      return absl::ResourceExhaustedError(absl::StrCat("the model's weights exceed the limit of ",
                                                       FormatBytes(options_.max_weights), " at tensor '",
                                                       name, "'"));
    if (!to_.constants.try_emplace(name, std::move(constant)).second)
      return absl::InvalidArgumentError(absl::StrCat("the tensor '", name, "' is defined twice"));
    return absl::OkStatus();
  }

  absl::Status ReadInterface() {
    for (const onnx::ValueInfoProto& input : from_.input()) {
      if (to_.constants.contains(input.name())) continue;
      TROUPE_ASSIGN_OR_RETURN(*to_.inputs.emplace(to_.inputs.end()), SpecOf(input, "input"));
      if (!input.type().tensor_type().has_shape())
        return absl::UnimplementedError(
            absl::StrCat("input '", input.name(), "' does not say how many dimensions it has"));
      AddOpenDimensions(input, to_.inputs.back());
    }
    absl::flat_hash_set<std::string> names;
    for (const onnx::ValueInfoProto& output : from_.output()) {
      TROUPE_ASSIGN_OR_RETURN(*to_.outputs.emplace(to_.outputs.end()), SpecOf(output, "output"));
      if (!output.type().tensor_type().has_shape()) to_.unshaped_outputs.push_back(output.name());
      if (!names.insert(output.name()).second)
        return absl::InvalidArgumentError(absl::StrCat("output '", output.name(), "' stands twice"));
    }
    if (to_.outputs.empty()) return absl::InvalidArgumentError("the model has no outputs");
    return absl::OkStatus();
  }

  void AddOpenDimensions(const onnx::ValueInfoProto& input, const proto::TensorSpec& spec) {
    std::vector<std::string> names;
    for (const auto& dim : input.type().tensor_type().shape().dim()) names.push_back(dim.dim_param());
    to_.open.AddInput(spec, names);
  }

  absl::Status ReadNodes() {
    for (onnx::NodeProto& node : *from_.mutable_node()) {
      if (HasSubgraphs(node)) {
        TROUPE_RETURN_IF_ERROR(ReadControlStep(node));
        continue;
      }
      TROUPE_ASSIGN_OR_RETURN(proto::Step step, TakeNode(node, options_));
      if (step.op() == "Constant") {
        TROUPE_ASSIGN_OR_RETURN(Constant constant, ConstantOf(step));
        TROUPE_RETURN_IF_ERROR(AddConstant(step.outputs(0), std::move(constant)));
      } else {
        TROUPE_RETURN_IF_ERROR(AppendStep(std::move(step), to_));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadControlStep(onnx::NodeProto& node) {
    if (depth_ == kMaxSubgraphDepth)
      return absl::ResourceExhaustedError(
          absl::StrCat(node.op_type(), " '", node.name(), "' lies ", depth_,
                       " graphs deep, and its own would be deeper than the limit of ", kMaxSubgraphDepth));
    NamedSubgraphs subgraphs;
    onnx::NodeProto bare = node;
    bare.clear_attribute();
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.type() != onnx::AttributeProto::GRAPH) {
        *bare.add_attribute() = std::move(attribute);
        continue;
      }
      auto subgraph = std::make_shared<Graph>();
      subgraph->opset = to_.opset;
      TROUPE_RETURN_IF_ERROR(
          GraphReader(*attribute.mutable_g(), options_, depth_ + 1, totals_, *subgraph).RunSubgraph());
      for (int i = 0; node.op_type() == "Loop" && i < std::min(attribute.g().input_size(), 2); ++i)
        GiveAsVector(attribute.g().input(i), static_cast<std::size_t>(i), *subgraph);
      subgraphs.emplace_back(attribute.name(), std::move(subgraph));
    }
    TROUPE_ASSIGN_OR_RETURN(proto::Step step, TakeNode(bare, options_));
    return AddControlStep(std::move(step), std::move(subgraphs), to_);
  }

  // A model may hand out a constant; a plan only knows outputs of steps, and inputs.
  absl::Status ProduceOutputsBySteps() {
    for (const proto::TensorSpec& output : to_.outputs) {
      const auto constant = to_.constants.find(output.name());
      if (constant == to_.constants.end()) continue;
      const std::string renamed = absl::StrCat(output.name(), "/constant");
      TROUPE_RETURN_IF_ERROR(RenameConstant(output.name(), renamed));
      proto::Step& step = to_.steps.emplace_back();
      step.set_op("Identity");
      step.set_name(output.name());
      step.add_inputs(renamed);
      step.add_outputs(output.name());
    }
    return absl::OkStatus();
  }

  absl::Status RenameConstant(const std::string& from, const std::string& to) {
    Constant constant = to_.constants.at(from);
    if (!to_.constants.try_emplace(to, std::move(constant)).second)
      return absl::InvalidArgumentError(absl::StrCat("the name '", to, "' is taken"));
    to_.constants.erase(from);
    for (proto::Step& step : to_.steps)
      for (std::string& input : *step.mutable_inputs())
        if (input == from) input = to;
    return absl::OkStatus();
  }

  onnx::GraphProto& from_;
  const ImportOptions& options_;
  int depth_;
  Totals& totals_;
  Graph& to_;
};

}  // namespace

absl::StatusOr<Graph> ReadGraph(std::span<const std::byte> file, const ImportOptions& options) {
  onnx::ModelProto model;
  TROUPE_RETURN_IF_ERROR(Parse(file, model));
  Graph graph;
  Sha256 digest;
  digest.Update(file);
  graph.onnx_digest = digest.Finish();
  TROUPE_ASSIGN_OR_RETURN(graph.opset, OpsetOf(model));
  TROUPE_RETURN_IF_ERROR(InlineFunctions(model, graph.opset, options.max_nodes));
  TROUPE_RETURN_IF_ERROR(AdaptClassicModel(model));
  graph.name = model.graph().name();
  Totals totals;
  TROUPE_RETURN_IF_ERROR(GraphReader(*model.mutable_graph(), options, 0, totals, graph).Run());
  return graph;
}

absl::StatusOr<ImportedModel> ReadOnnx(std::span<const std::byte> file, const ImportOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(Graph graph, ReadGraph(file, options));
  TROUPE_RETURN_IF_ERROR(SealSubgraphs(graph));
  return LayOut(std::move(graph), options);
}

}  // namespace troupe::gpu

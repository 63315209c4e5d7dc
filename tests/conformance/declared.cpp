#include "tests/conformance/declared.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gpu/import/fused_nodes.hpp"
#include "gpu/import/onnx_reader.hpp"
#include "gpu/import/onnx_tensor.hpp"
#include "gpu/import/sequences.hpp"
#include "gpu/ops/control_flow.hpp"
#include "gpu/ops/convert.hpp"
#include "onnx/defs/schema.h"
#include "onnx/shape_inference/implementation.h"

namespace troupe::gpu::conformance {
namespace {

std::string WhyNotType(const onnx::TypeProto& type) {
  if (type.has_sequence_type()) return "values of sequence type";
  if (type.has_optional_type()) return "values of optional type";
  if (type.has_map_type()) return "values of map type";
  if (!type.has_tensor_type()) return "";
  const proto::DataType element = DataTypeOfOnnx(type.tensor_type().elem_type());
  if (element == proto::DATA_TYPE_UNSPECIFIED) return "an element type without a name here";
  return "";
}

// The types of all values that the file gives, or that the standard's own inference finds.
std::map<std::string, proto::DataType> ValueTypes(onnx::ModelProto model) {
  try {
    onnx::shape_inference::InferShapes(model);
  } catch (const std::exception&) {
    // Without the inference only the types that the file itself gives are known.
  }
  std::map<std::string, proto::DataType> types;
  const auto take = [&](const auto& values) {
    for (const auto& value : values) {
      if (value.type().has_tensor_type()) {
        types[value.name()] = DataTypeOfOnnx(value.type().tensor_type().elem_type());
      }
    }
  };
  take(model.graph().input());
  take(model.graph().value_info());
  take(model.graph().output());
  for (const auto& tensor : model.graph().initializer())
    types[tensor.name()] = DataTypeOfOnnx(tensor.data_type());
  return types;
}

int OpsetOf(const onnx::ModelProto& model) {
  int opset = 0;
  for (const auto& import : model.opset_import()) {
    if (import.domain().empty() || import.domain() == "ai.onnx") opset = static_cast<int>(import.version());
  }
  return opset;
}

// The one element of a value of the model: an initialiser, or an input of the case's first data set.
std::optional<double> OneNumber(const OnnxCase& test, const std::string& name) {
  std::optional<Constant> value;
  for (onnx::TensorProto tensor : test.model.graph().initializer()) {
    if (tensor.name() != name) continue;
    if (auto taken = TakeTensor(tensor, {}, name); taken.ok()) value = *std::move(taken);
  }
  const std::vector<std::string> names = InputNames(test.model.graph());
  const auto at = std::find(names.begin(), names.end(), name);
  if (const auto sets = LoadDataSets(test); !value && at != names.end() && sets.ok() && !sets->empty()) {
    const auto index = static_cast<std::size_t>(at - names.begin());
    if (index < sets->front().inputs.size()) value = sets->front().inputs[index];
  }
  if (!value || value->data->size() != ElementSize(value->type)) return std::nullopt;
  double number = 0;
  ConvertElements(value->type, reinterpret_cast<const std::byte*>(value->data->data()), proto::FP64,
                  reinterpret_cast<std::byte*>(&number), 1);
  return number;
}

bool Trains(const OnnxCase& test, const onnx::NodeProto& node) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == "training_mode" && attribute.i() != 0) return true;
  }
  // The third input of Dropout turns training on. With a ratio of 0 it drops nothing even so.
  if (node.op_type() != "Dropout" || node.input_size() < 3 || node.input(2).empty()) return false;
  if (OneNumber(test, node.input(2)) == 0.0) return false;
  return node.input(1).empty() || OneNumber(test, node.input(1)) != 0.0;
}

using ValueTypesByName = std::map<std::string, proto::DataType>;

std::string WhyNotNode(const OnnxCase& test, const onnx::NodeProto& node, int opset,
                       const ValueTypesByName& types);

// The types of what stands in a subgraph are known only where the file tells them.
std::string WhyNotSubgraphs(const OnnxCase& test, const onnx::NodeProto& node, int opset,
                            const ValueTypesByName& types) {
  if (FindControlFlow(node.op_type(), opset) == nullptr)
    return absl::StrCat("operator ", node.op_type(), " at opset ", opset);
  for (const auto& attribute : node.attribute())
    for (const auto& inner : attribute.g().node())
      if (std::string why = WhyNotNode(test, inner, opset, types); !why.empty()) return why;
  return "";
}

std::string WhyNotNode(const OnnxCase& test, const onnx::NodeProto& node, int opset,
                       const ValueTypesByName& types) {
  const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
  const std::string op = standard ? node.op_type() : absl::StrCat(node.domain(), ".", node.op_type());
  // The importer makes standard operators of them.
  if (IsFusedNode(op) || IsSequenceOperator(op, opset)) return "";
  if (IsControlFlow(op)) return WhyNotSubgraphs(test, node, opset, types);
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g() || attribute.graphs_size() > 0)
      return absl::StrCat("control flow (", node.op_type(), ")");
  }
  const Operator* entry = FindOperator(op, opset);
  if (entry == nullptr) return absl::StrCat("operator ", op);
  if (Trains(test, node)) return absl::StrCat("training (", node.op_type(), ")");
  const bool has_input = node.input_size() > 0 && !node.input(0).empty();
  const auto type = types.find(has_input ? node.input(0) : node.output(0));
  if (type != types.end() && ((entry->types >> type->second) & 1U) == 0) {
    return absl::StrCat(node.op_type(), " on ", proto::DataType_Name(type->second));
  }
  return "";
}

// What classic models hand out as maps, and the importer as tensors (gpu/import/classic_models).
std::set<std::string> RewrittenOutputs(const onnx::GraphProto& graph) {
  std::set<std::string> names;
  for (const auto& node : graph.node())
    if (node.domain() == "ai.onnx.ml" && node.op_type() == "ZipMap" && node.output_size() > 0)
      names.insert(node.output(0));
  return names;
}

// Some cases give an input of another shape than their own model declares.
bool Contradicts(const OnnxCase& test) {
  const auto sets = LoadDataSets(test);
  if (!sets.ok()) return false;  // running the case then says why
  std::map<std::string, const onnx::TypeProto::Tensor*> declared;
  for (const auto& input : test.model.graph().input()) declared[input.name()] = &input.type().tensor_type();
  const std::vector<std::string> names = InputNames(test.model.graph());
  for (const DataSet& set : *sets) {
    for (std::size_t i = 0; i < set.inputs.size() && i < names.size(); ++i) {
      const auto& shape = declared[names[i]]->shape();
      if (!declared[names[i]]->has_shape()) continue;
      if (shape.dim_size() != static_cast<int>(set.inputs[i].shape.size())) return true;
      for (int d = 0; d < shape.dim_size(); ++d) {
        if (shape.dim(d).has_dim_value() &&
            shape.dim(d).dim_value() != set.inputs[i].shape[static_cast<std::size_t>(d)]) {
          return true;
        }
      }
    }
  }
  return false;
}

}  // namespace

std::string WhyNotDeclared(const OnnxCase& test) {
  const auto& graph = test.model.graph();
  const std::set<std::string> rewritten = RewrittenOutputs(graph);
  for (const auto* values : {&graph.input(), &graph.output(), &graph.value_info()}) {
    for (const auto& value : *values) {
      if (rewritten.contains(value.name())) continue;
      if (std::string why = WhyNotType(value.type()); !why.empty()) return why;
    }
  }
  const int opset = OpsetOf(test.model);
  std::set<std::string> reasons;  // sorted, so that the page does not depend on the order of nodes
  const auto types = ValueTypes(test.model);
  for (const auto& node : graph.node()) {
    if (std::string why = WhyNotNode(test, node, opset == 0 ? kMaxOpset : opset, types); !why.empty())
      reasons.insert(why);
  }
  if (!reasons.empty()) return absl::StrJoin(reasons, ", ");
  if (opset < kMinOpset || opset > kMaxOpset) return absl::StrCat("opset ", opset);
  if (Contradicts(test)) return "the data contradicts the model's declared shapes";
  return "";
}

std::string FormatTypes(TypeSet types) {
  std::vector<std::string> names;
  for (int i = proto::DataType_MIN; i <= proto::DataType_MAX; ++i) {
    if (((types >> i) & 1U) != 0) names.push_back(proto::DataType_Name(static_cast<proto::DataType>(i)));
  }
  return absl::StrJoin(names, " ");
}

}  // namespace troupe::gpu::conformance

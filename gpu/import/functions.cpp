#include "gpu/import/functions.hpp"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "onnx/onnx_pb.h"

namespace troupe::gpu {
namespace {

constexpr int kDeepestCall = 16;
// Of all nodes that calls make: a node may hold a large constant, and be made by each of many calls.
constexpr std::size_t kMostBytes = std::size_t{256} << 20;
// FunctionProto.attribute_proto: attributes with a value for calls that give none. Older forms of the message lack it.
constexpr int kAttributeDefaults = 11;

using Attributes = absl::flat_hash_map<std::string, onnx::AttributeProto>;
using Names = absl::flat_hash_map<std::string, std::string>;

bool IsDefaultDomain(const std::string& domain) {
  return domain.empty() || domain == "ai.onnx";
}

std::string KeyOf(const std::string& domain, const std::string& name) {
  return absl::StrCat(domain, ".", name);
}

class FunctionInliner {
 public:
  FunctionInliner(const onnx::ModelProto& model, int opset, std::size_t max_nodes)
      : opset_(opset), max_nodes_(max_nodes) {
    for (const onnx::FunctionProto& function : model.functions())
      if (!IsDefaultDomain(function.domain()))
        functions_[KeyOf(function.domain(), function.name())] = &function;
  }

  absl::Status Inline(onnx::GraphProto& graph, int depth) {
    std::vector<onnx::NodeProto> nodes;
    for (onnx::NodeProto& node : *graph.mutable_node())
      TROUPE_RETURN_IF_ERROR(Take(std::move(node), depth, nodes));
    graph.clear_node();
    for (onnx::NodeProto& node : nodes) *graph.add_node() = std::move(node);
    return absl::OkStatus();
  }

 private:
  absl::Status Take(onnx::NodeProto node, int depth, std::vector<onnx::NodeProto>& out) {
    if (++nodes_ > max_nodes_)
      return absl::ResourceExhaustedError(
          absl::StrCat("the model and its functions have more than ", max_nodes_, " nodes"));
    const auto function = functions_.find(KeyOf(node.domain(), node.op_type()));
    if (function != functions_.end()) return Expand(*function->second, node, depth, out);
    for (onnx::AttributeProto& attribute : *node.mutable_attribute())
      if (attribute.has_g()) TROUPE_RETURN_IF_ERROR(Inline(*attribute.mutable_g(), depth));
    out.push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::Status Expand(const onnx::FunctionProto& function, const onnx::NodeProto& call, int depth,
                      std::vector<onnx::NodeProto>& out) {
    const std::string label = absl::StrCat("function ", function.domain(), ".", function.name());
    if (depth >= kDeepestCall)
      return absl::InvalidArgumentError(absl::StrCat(label, " calls itself, or calls nest deeper than 16"));
    for (const auto& import : function.opset_import())
      if (IsDefaultDomain(import.domain()) && import.version() != opset_)
        return absl::UnimplementedError(absl::StrCat(label, " is of opset ", import.version(),
                                                     ", its model of ", opset_,
                                                     "; export both with one opset"));
    if (call.input_size() > function.input_size() || call.output_size() > function.output_size())
      return absl::InvalidArgumentError(absl::StrCat(label, " has ", function.input_size(), " inputs and ",
                                                     function.output_size(), " outputs, and is called with ",
                                                     call.input_size(), " and ", call.output_size()));
    const std::string prefix = absl::StrCat("/", function.name(), "/", calls_++, "/");
    Names names;
    for (int i = 0; i < function.input_size(); ++i)
      names[function.input(i)] = i < call.input_size() ? call.input(i) : "";
    for (int i = 0; i < call.output_size(); ++i) {
      if (call.output(i).empty()) continue;
      if (!names.try_emplace(function.output(i), call.output(i)).second)
        out.push_back(Copy(names[function.output(i)], call.output(i)));
    }
    const Attributes given = AttributesOf(function, call);
    for (const onnx::NodeProto& inner : function.node()) {
      bytes_ += inner.ByteSizeLong();
      if (bytes_ > kMostBytes)
        return absl::ResourceExhaustedError(
            absl::StrCat(label, ": the nodes that calls of functions make have more than 256 MiB"));
      onnx::NodeProto node = inner;
      node.set_name(absl::StrCat(call.name(), prefix, inner.name()));
      Adapt(node, names, prefix, given);
      TROUPE_RETURN_IF_ERROR(Take(std::move(node), depth + 1, out));
    }
    return absl::OkStatus();
  }

  static onnx::NodeProto Copy(const std::string& from, const std::string& to) {
    onnx::NodeProto node;
    node.set_op_type("Identity");
    node.add_input(from);
    node.add_output(to);
    return node;
  }

  // The values of the function's attributes in this call.
  static Attributes AttributesOf(const onnx::FunctionProto& function, const onnx::NodeProto& call) {
    Attributes given;
    const auto& unknown = function.GetReflection()->GetUnknownFields(function);
    for (int i = 0; i < unknown.field_count(); ++i) {
      onnx::AttributeProto attribute;
      const auto& field = unknown.field(i);
      if (field.number() == kAttributeDefaults &&
          field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED &&
          attribute.ParseFromString(field.length_delimited()))
        given[attribute.name()] = attribute;
    }
    for (const onnx::AttributeProto& attribute : call.attribute()) given[attribute.name()] = attribute;
    return given;
  }

  // Gives the node the call's names and attributes, in the graphs inside it too.
  static void Adapt(onnx::NodeProto& node, const Names& names, const std::string& prefix,
                    const Attributes& given) {
    for (std::string& name : *node.mutable_input()) Rename(name, names, prefix);
    for (std::string& name : *node.mutable_output()) Rename(name, names, prefix);
    std::vector<onnx::AttributeProto> attributes;
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.ref_attr_name().empty()) {
        if (attribute.has_g()) AdaptGraph(*attribute.mutable_g(), names, prefix, given);
        attributes.push_back(std::move(attribute));
        continue;
      }
      // One that the call does not give is absent inside too.
      const auto value = given.find(attribute.ref_attr_name());
      if (value == given.end()) continue;
      attributes.push_back(value->second);
      attributes.back().set_name(attribute.name());
    }
    node.clear_attribute();
    for (onnx::AttributeProto& attribute : attributes) *node.add_attribute() = std::move(attribute);
  }

  static void AdaptGraph(onnx::GraphProto& graph, const Names& names, const std::string& prefix,
                         const Attributes& given) {
    for (onnx::TensorProto& tensor : *graph.mutable_initializer())
      Rename(*tensor.mutable_name(), names, prefix);
    for (onnx::ValueInfoProto& value : *graph.mutable_input()) Rename(*value.mutable_name(), names, prefix);
    for (onnx::ValueInfoProto& value : *graph.mutable_output()) Rename(*value.mutable_name(), names, prefix);
    for (onnx::NodeProto& node : *graph.mutable_node()) Adapt(node, names, prefix, given);
  }

  static void Rename(std::string& name, const Names& names, const std::string& prefix) {
    if (name.empty()) return;
    const auto outer = names.find(name);
    name = outer != names.end() ? outer->second : absl::StrCat(prefix, name);
  }

  absl::flat_hash_map<std::string, const onnx::FunctionProto*> functions_;
  int opset_;
  std::size_t max_nodes_;
  std::size_t nodes_ = 0;
  std::size_t calls_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace

absl::Status InlineFunctions(onnx::ModelProto& model, int opset, std::size_t max_nodes) {
  if (model.functions_size() == 0) return absl::OkStatus();
  return FunctionInliner(model, opset, max_nodes).Inline(*model.mutable_graph(), 0);
}

}  // namespace troupe::gpu

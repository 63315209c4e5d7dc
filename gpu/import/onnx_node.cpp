#include "gpu/import/onnx_node.hpp"

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/import/onnx_tensor.hpp"
#include "gpu/ops/control_flow.hpp"
#include "onnx/onnx_pb.h"

namespace troupe::gpu {
namespace {

using onnx::AttributeProto;

absl::Status TakeTensorAttribute(AttributeProto& from, const ImportOptions& options, const std::string& where,
                                 proto::Attribute& to) {
  TROUPE_ASSIGN_OR_RETURN(Constant constant, TakeTensor(*from.mutable_t(), options, where));
  // An attribute lives in a protobuf message, whose size is limited to 2 GiB; what is bigger belongs in an
  // initialiser.
  if (constant.data->size() > MiB(256).count())
    return absl::ResourceExhaustedError(absl::StrCat(where, " holds a tensor of more than 256 MiB"));
  proto::Attribute::Literal& literal = *to.mutable_tensor();
  literal.mutable_spec()->set_type(constant.type);
  literal.mutable_spec()->mutable_shape()->Assign(constant.shape.begin(), constant.shape.end());
  literal.set_data(std::string(*constant.data));
  return absl::OkStatus();
}

absl::Status TakeAttribute(AttributeProto& from, const ImportOptions& options, const std::string& label,
                           proto::Attribute& to) {
  const std::string where = absl::StrCat(label, ": attribute '", from.name(), "'");
  to.set_name(from.name());
  switch (from.type()) {
    case AttributeProto::INT:
      to.set_i(from.i());
      return absl::OkStatus();
    case AttributeProto::FLOAT:
      to.set_f(from.f());
      return absl::OkStatus();
    case AttributeProto::STRING:
      to.set_s(from.s());
      return absl::OkStatus();
    case AttributeProto::INTS:
      to.mutable_ints()->mutable_values()->Assign(from.ints().begin(), from.ints().end());
      return absl::OkStatus();
    case AttributeProto::FLOATS:
      to.mutable_floats()->mutable_values()->Assign(from.floats().begin(), from.floats().end());
      return absl::OkStatus();
    case AttributeProto::STRINGS:
      to.mutable_strings();
      for (const std::string& text : from.strings()) to.mutable_strings()->add_values(text);
      return absl::OkStatus();
    case AttributeProto::TENSOR:
      return TakeTensorAttribute(from, options, where, to);
    case AttributeProto::UNDEFINED:
      return absl::InvalidArgumentError(absl::StrCat(where, " has no type"));
    case AttributeProto::SPARSE_TENSOR:
    case AttributeProto::SPARSE_TENSORS:
      return absl::UnimplementedError(absl::StrCat(where, " is a sparse tensor, which is not supported"));
    case AttributeProto::GRAPH:
    case AttributeProto::GRAPHS:
      return absl::UnimplementedError(
          absl::StrCat(where, " is a graph; of standard operators only If, Loop and Scan may have one"));
    default:
      return absl::UnimplementedError(absl::StrCat(where, " is of a kind that is not supported"));
  }
}

template <typename T>
Constant Pack(proto::DataType type, std::vector<std::int64_t> shape, const T* values, std::size_t count) {
  return {type, std::move(shape), HoldBytes(values, count * sizeof(T))};
}

Constant PackStrings(std::vector<std::int64_t> shape,
                     const google::protobuf::RepeatedPtrField<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) {
    const auto length = static_cast<std::uint32_t>(text.size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
    bytes.append(text);
  }
  return {proto::BYTES, std::move(shape), HoldBytes(std::move(bytes))};
}

bool IsStandard(const onnx::NodeProto& node) {
  return node.domain().empty() || node.domain() == "ai.onnx";
}

// Operators that are not supported, and named as such by CheckOperators.
bool IgnoresGraphs(const onnx::NodeProto& node) {
  return !IsStandard(node) || node.op_type() == "SequenceMap";
}

}  // namespace

bool HasSubgraphs(const onnx::NodeProto& node) {
  return IsStandard(node) && IsControlFlow(node.op_type());
}

std::string StepLabel(const proto::Step& step) {
  const std::string& name = step.name().empty() && step.outputs_size() > 0 ? step.outputs(0) : step.name();
  return absl::StrCat(step.op(), " '", name, "'");
}

absl::StatusOr<proto::Step> TakeNode(onnx::NodeProto& node, const ImportOptions& options) {
  proto::Step step;
  step.set_op(IsStandard(node) ? node.op_type() : absl::StrCat(node.domain(), ".", node.op_type()));
  step.mutable_inputs()->Swap(node.mutable_input());
  step.mutable_outputs()->Swap(node.mutable_output());
  // Optional inputs and outputs at the end may be left out or named ""; one form is easier to compare.
  while (step.inputs_size() > 0 && step.inputs(step.inputs_size() - 1).empty())
    step.mutable_inputs()->RemoveLast();
  step.set_name(node.name().empty() && step.outputs_size() > 0 ? step.outputs(0) : node.name());
  const std::string label = StepLabel(step);
  if (node.op_type().empty())
    return absl::InvalidArgumentError(absl::StrCat("node", label, " has no operator"));
  absl::flat_hash_set<std::string> names;
  for (AttributeProto& attribute : *node.mutable_attribute()) {
    if (!names.insert(attribute.name()).second)
      return absl::InvalidArgumentError(
          absl::StrCat(label, ": attribute '", attribute.name(), "' stands twice"));
    if (!attribute.ref_attr_name().empty())
      return absl::InvalidArgumentError(absl::StrCat(label, ": attribute '", attribute.name(),
                                                     "' refers to a function's attribute outside one"));
    const bool graph =
        attribute.type() == AttributeProto::GRAPH || attribute.type() == AttributeProto::GRAPHS;
    if (graph && IgnoresGraphs(node)) continue;
    TROUPE_RETURN_IF_ERROR(TakeAttribute(attribute, options, label, *step.add_attributes()));
  }
  return step;
}

absl::StatusOr<Constant> ConstantOf(const proto::Step& step) {
  if (step.inputs_size() != 0 || step.outputs_size() != 1 || step.attributes_size() != 1)
    return absl::InvalidArgumentError(
        absl::StrCat(StepLabel(step), " must have no input, one output and one attribute"));
  const proto::Attribute& value = step.attributes(0);
  const std::string& name = value.name();
  if (name == "value" && value.has_tensor()) {
    const auto& spec = value.tensor().spec();
    return Constant{
        spec.type(), {spec.shape().begin(), spec.shape().end()}, HoldBytes(value.tensor().data())};
  }
  if (name == "value_int" && value.has_i()) {
    const std::int64_t i = value.i();
    return Pack(proto::INT64, {}, &i, 1);
  }
  if (name == "value_float" && value.has_f()) {
    const float f = value.f();
    return Pack(proto::FP32, {}, &f, 1);
  }
  if (name == "value_ints" && value.has_ints()) {
    const auto& ints = value.ints().values();
    return Pack(proto::INT64, {ints.size()}, ints.data(), static_cast<std::size_t>(ints.size()));
  }
  if (name == "value_floats" && value.has_floats()) {
    const auto& floats = value.floats().values();
    return Pack(proto::FP32, {floats.size()}, floats.data(), static_cast<std::size_t>(floats.size()));
  }
  if (name == "value_string" && value.has_s()) {
    google::protobuf::RepeatedPtrField<std::string> one;
    *one.Add() = value.s();
    return PackStrings({}, one);
  }
  if (name == "value_strings" && value.has_strings())
    return PackStrings({value.strings().values_size()}, value.strings().values());
  return absl::InvalidArgumentError(
      absl::StrCat(StepLabel(step), ": attribute '", name, "' is not a constant of a known kind"));
}

}  // namespace troupe::gpu

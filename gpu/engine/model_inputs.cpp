#include "gpu/engine/model_inputs.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "gpu/engine/plan.hpp"
#include "gpu/ops/control_flow.hpp"
#include "gpu/ops/layout.hpp"
#include "gpu/ops/text_room.hpp"
#include "proto/pack_target.hpp"

namespace troupe::gpu {
namespace {

std::string FormatSpec(const proto::TensorSpec& spec) {
  return absl::StrCat(proto::DataType_Name(spec.type()),
                      FormatShape({spec.shape().data(), spec.shape().data() + spec.shape_size()}));
}

absl::Status CheckWeight(const proto::Weight& weight, std::uint64_t blob) {
  const std::string who = absl::StrCat("weight '", weight.name(), "': ");
  if (weight.offset() % kWeightAlignment.count() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, "offset ", weight.offset(), " is not a multiple of 64"));
  }
  if (weight.offset() > blob || weight.length() > blob - weight.offset()) {
    return absl::InvalidArgumentError(absl::StrCat(who, "bytes ", weight.offset(), "+", weight.length(),
                                                   " lie outside the blob of ", blob, " bytes"));
  }
  ValueInfo info;
  info.type = weight.type();
  info.shape = {weight.shape().begin(), weight.shape().end()};
  info.layout = weight.layout();
  if (CellSize(info.type) == 0) return absl::InvalidArgumentError(absl::StrCat(who, "has no known type"));
  if (!info.layout.empty() && info.type != proto::FP32) {
    return absl::InvalidArgumentError(absl::StrCat(who, "has a device layout but is not FP32"));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t count, CountElements(info.shape));
  // Each text has a length: more elements than that are not believed, whatever the shape says.
  if (info.type == proto::BYTES && static_cast<std::uint64_t>(count) > weight.length() / kTextLength)
    return absl::InvalidArgumentError(
        absl::StrCat(who, "has ", weight.length(), " bytes, too few for ", count, " texts"));
  if (info.type == proto::BYTES) return absl::OkStatus();
  const auto bytes = ValueBytes(info);
  if (!bytes.ok())
    return absl::InvalidArgumentError(absl::StrCat(who, std::string(bytes.status().message())));
  if (bytes->count() != weight.length()) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, "has ", weight.length(), " bytes, its shape and layout need ", bytes->count()));
  }
  return absl::OkStatus();
}

absl::Status CheckTextInput(const std::string& name, std::int64_t count, Bytes bytes) {
  if (bytes <= kMaxTextBytes && static_cast<std::uint64_t>(count) <= kMaxTextBytes.count() / kTextLength)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input '", name, "' has ", count, " texts with ",
                                                 bytes.count(), " bytes; a tensor of texts may take ",
                                                 FormatBytes(kMaxTextBytes), " with their lengths"));
}

bool Matches(const proto::TensorSpec& declared, const proto::TensorSpec& given) {
  if (declared.type() != given.type() || declared.shape_size() != given.shape_size()) return false;
  for (int d = 0; d < given.shape_size(); ++d) {
    if (declared.shape(d) >= 0 && declared.shape(d) != given.shape(d)) return false;
  }
  return true;
}

}  // namespace

absl::Status CheckWeights(const proto::Model& model, std::span<const std::byte> weights) {
  if (!model.packed_for().empty() && !proto::IsPackedFor(model.packed_for(), PackTarget())) {
    return absl::FailedPreconditionError(absl::StrCat("the model is packed for ", model.packed_for(),
                                                      ", this machine needs ", PackTarget(),
                                                      ": pack it again from its canonical form"));
  }
  std::set<std::string> names;
  for (const proto::Weight& weight : model.weights()) {
    if (!names.insert(weight.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat("weight '", weight.name(), "' is there twice"));
    }
    if (!weight.layout().empty() && model.packed_for().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("weight '", weight.name(), "' has a device layout in a model that is not packed"));
    }
    TROUPE_RETURN_IF_ERROR(CheckWeight(weight, weights.size()));
  }
  return absl::OkStatus();
}

absl::Status CheckInputSpecs(const proto::Model& model, std::span<const proto::TensorSpec> inputs) {
  if (inputs.size() != static_cast<std::size_t>(model.inputs_size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model has ", model.inputs_size(), " inputs, ", inputs.size(), " were given"));
  }
  for (int i = 0; i < model.inputs_size(); ++i) {
    const proto::TensorSpec& given = inputs[static_cast<std::size_t>(i)];
    const proto::TensorSpec& declared = model.inputs(i);
    if (!given.name().empty() && given.name() != declared.name()) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", i, " is '", given.name(), "', expected '", declared.name(), "'"));
    }
    const Shape shape(given.shape().begin(), given.shape().end());
    const auto elements = CountElements(shape);
    if (!elements.ok() || !Matches(declared, given)) {
      return absl::InvalidArgumentError(absl::StrCat("input '", declared.name(), "' is ", FormatSpec(given),
                                                     ", expected ", FormatSpec(declared)));
    }
    if (CellSize(given.type()) == 0)
      return absl::InvalidArgumentError(absl::StrCat("input '", declared.name(), "' has no known type"));
    if (given.type() == proto::BYTES)
      TROUPE_RETURN_IF_ERROR(CheckTextInput(declared.name(), *elements, Bytes(given.text_bytes())));
  }
  return absl::OkStatus();
}

namespace {

// Steps at a depth below the limit; what lies deeper is the builder's to refuse.
void FindUnknown(const google::protobuf::RepeatedPtrField<proto::Step>& steps, int opset, int depth,
                 std::set<std::string>& unknown) {
  for (const proto::Step& step : steps) {
    if (FindOperator(step.op(), opset) == nullptr && FindControlFlow(step.op(), opset) == nullptr)
      unknown.insert(step.op());
    if (depth == kMaxSubgraphDepth) continue;
    for (const proto::Subgraph& subgraph : step.subgraphs())
      FindUnknown(subgraph.steps(), opset, depth + 1, unknown);
  }
}

}  // namespace

absl::Status CheckOperators(const proto::Model& model) {
  std::set<std::string> unknown;
  FindUnknown(model.steps(), model.opset(), 0, unknown);
  if (unknown.empty()) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("unsupported operators at opset ", model.opset(), ": ", absl::StrJoin(unknown, ", ")));
}

}  // namespace troupe::gpu

#include "gpu/import/model_check.hpp"

#include <array>
#include <limits>
#include <string>
#include <string_view>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "gpu/ops/control_flow.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {
namespace {

constexpr std::uint64_t kWeightAlignment = 64;
constexpr std::uint32_t kPlainFormat = 1;  // of a model without subgraphs
constexpr std::array<std::string_view, 8> kActivations = {
    "", "Relu", "Clip", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "com.microsoft.QuickGelu"};

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("canonical model: ", what));
}

bool KnownType(proto::DataType type) {
  return proto::DataType_IsValid(type) && type != proto::DATA_TYPE_UNSPECIFIED;
}

class Checker {
 public:
  Checker(const proto::Model& model, std::uint64_t weights_bytes)
      : model_(model), weights_bytes_(weights_bytes) {}

  absl::Status Run() {
    TROUPE_RETURN_IF_ERROR(CheckHeader());
    for (const proto::TensorSpec& input : model_.inputs()) {
      TROUPE_RETURN_IF_ERROR(CheckInterface(input, "input"));
      TROUPE_RETURN_IF_ERROR(Define(input.name(), "input"));
    }
    for (const proto::Weight& weight : model_.weights()) TROUPE_RETURN_IF_ERROR(CheckWeight(weight));
    for (const proto::Step& step : model_.steps()) TROUPE_RETURN_IF_ERROR(CheckStep(step));
    return CheckOutputs();
  }

 private:
  absl::Status CheckHeader() const {
    if (model_.format_version() != FormatOf(model_))
      return Bad(absl::StrCat("format ", model_.format_version(), ", but this program reads ", kPlainFormat,
                              ", and ", kModelFormat,
                              " for a model with control flow; import the model again, or run a program "
                              "that is as new as the one that imported it"));
    if (model_.weights_bytes() != weights_bytes_)
      return Bad(absl::StrCat("it describes ", model_.weights_bytes(), " bytes of weights, but there are ",
                              weights_bytes_));
    if (!IsSha256Hex(model_.weights_digest())) return Bad("its weights have no digest");
    if (!model_.onnx_digest().empty() && !IsSha256Hex(model_.onnx_digest()))
      return Bad("its ONNX digest is none");
    return absl::OkStatus();
  }

  static absl::Status CheckInterface(const proto::TensorSpec& spec, const std::string& kind) {
    const std::string where = absl::StrCat(kind, " '", spec.name(), "'");
    if (spec.name().empty()) return Bad(absl::StrCat("an ", kind, " has no name"));
    if (!KnownType(spec.type())) return Bad(absl::StrCat(where, " has no known type"));
    Shape known;
    for (std::int64_t size : spec.shape())
      if (size != -1) known.push_back(size);
    if (auto count = CountElements(known); !count.ok())
      return Bad(absl::StrCat(where, ": ", count.status().message()));
    return absl::OkStatus();
  }

  // In the graph or subgraph that is looked at.
  absl::Status Define(const std::string& name, const std::string& who) {
    if (name.empty()) return Bad(absl::StrCat(who, " has no name"));
    if (!defined_.insert(name).second) return Bad(absl::StrCat(who, " defines '", name, "' a second time"));
    return absl::OkStatus();
  }

  absl::Status CheckWeight(const proto::Weight& weight) {
    const std::string where = absl::StrCat("weight '", weight.name(), "'");
    TROUPE_RETURN_IF_ERROR(Define(weight.name(), "a weight"));
    if (!KnownType(weight.type())) return Bad(absl::StrCat(where, " has no known type"));
    auto count = CountElements(Shape(weight.shape().begin(), weight.shape().end()));
    if (!count.ok()) return Bad(absl::StrCat(where, ": ", count.status().message()));
    if (weight.offset() % kWeightAlignment != 0)
      return Bad(absl::StrCat(where, " lies at ", weight.offset(), ", which is not aligned"));
    if (weight.offset() > weights_bytes_ || weight.length() > weights_bytes_ - weight.offset())
      return Bad(absl::StrCat(where, " lies at ", weight.offset(), " with ", weight.length(),
                              " bytes, outside the blob of ", weights_bytes_, " bytes"));
    if (!weight.layout().empty() && model_.packed_for().empty())
      return Bad(absl::StrCat(where, " has a device layout in a model that is not packed"));
    if (weight.layout().empty() && weight.type() != proto::BYTES)
      return CheckSize(where, weight.type(), *count, weight.length());
    return absl::OkStatus();
  }

  static absl::Status CheckSize(const std::string& where, proto::DataType type, std::int64_t count,
                                std::uint64_t length) {
    const std::uint64_t want = static_cast<std::uint64_t>(count) * ElementSize(type);
    if (length == want) return absl::OkStatus();
    return Bad(absl::StrCat(where, " has ", length, " bytes, but its type and shape ask for ", want));
  }

  absl::Status CheckStep(const proto::Step& step) {
    const std::string where = absl::StrCat(step.op(), " '", step.name(), "'");
    if (step.op().empty()) return Bad(absl::StrCat("step", where, " has no operator"));
    if (!absl::c_linear_search(kActivations, std::string_view(step.activation())))
      return Bad(absl::StrCat(where, " has the unknown activation '", step.activation(), "'"));
    for (const proto::Attribute& attribute : step.attributes())
      TROUPE_RETURN_IF_ERROR(CheckAttribute(attribute, where));
    for (const std::string& input : step.inputs())
      if (!input.empty() && !defined_.contains(input))
        return Bad(absl::StrCat(where, " reads '", input, "' before anything produces it"));
    if (const absl::Status status = CheckSubgraphs(step); !status.ok())
      return Bad(std::string(status.message()));
    for (const proto::Subgraph& subgraph : step.subgraphs())
      TROUPE_RETURN_IF_ERROR(CheckInside(subgraph, where));
    for (const std::string& output : step.outputs()) {
      if (output.empty()) continue;
      TROUPE_RETURN_IF_ERROR(Define(output, where));
      produced_.insert(output);
    }
    return absl::OkStatus();
  }

  // A subgraph knows its own names only.
  absl::Status CheckInside(const proto::Subgraph& subgraph, const std::string& where) {
    if (depth_ == kMaxSubgraphDepth)
      return Bad(absl::StrCat(where, " has a subgraph more than ", kMaxSubgraphDepth, " deep"));
    Checker inside(model_, weights_bytes_);
    inside.depth_ = depth_ + 1;
    for (const std::string& input : subgraph.inputs())
      TROUPE_RETURN_IF_ERROR(inside.Define(input, "an input of a subgraph"));
    for (const proto::Subgraph::Capture& capture : subgraph.captures())
      TROUPE_RETURN_IF_ERROR(inside.Define(capture.name(), "a capture of a subgraph"));
    for (const proto::Step& step : subgraph.steps()) TROUPE_RETURN_IF_ERROR(inside.CheckStep(step));
    for (const std::string& output : subgraph.outputs())
      if (!inside.defined_.contains(output))
        return Bad(absl::StrCat(where, " has a subgraph whose output '", output, "' nothing produces"));
    return absl::OkStatus();
  }

  static absl::Status CheckAttribute(const proto::Attribute& attribute, const std::string& step) {
    const std::string where = absl::StrCat(step, ": attribute '", attribute.name(), "'");
    if (attribute.value_case() == proto::Attribute::VALUE_NOT_SET)
      return Bad(absl::StrCat(where, " has no value"));
    if (!attribute.has_tensor()) return absl::OkStatus();
    const proto::TensorSpec& spec = attribute.tensor().spec();
    if (!KnownType(spec.type())) return Bad(absl::StrCat(where, " has no known type"));
    auto count = CountElements(Shape(spec.shape().begin(), spec.shape().end()));
    if (!count.ok()) return Bad(absl::StrCat(where, ": ", count.status().message()));
    if (spec.type() == proto::BYTES) return absl::OkStatus();
    return CheckSize(where, spec.type(), *count, attribute.tensor().data().size());
  }

  absl::Status CheckOutputs() {
    if (model_.outputs().empty()) return Bad("it has no outputs");
    absl::flat_hash_set<std::string> names;
    for (const proto::TensorSpec& output : model_.outputs()) {
      TROUPE_RETURN_IF_ERROR(CheckInterface(output, "output"));
      if (!names.insert(output.name()).second)
        return Bad(absl::StrCat("output '", output.name(), "' stands twice"));
      const bool handed_on = absl::c_any_of(
          model_.inputs(), [&](const proto::TensorSpec& input) { return input.name() == output.name(); });
      if (!handed_on && !produced_.contains(output.name()))
        return Bad(absl::StrCat("no step produces the output '", output.name(), "'"));
    }
    return absl::OkStatus();
  }

  const proto::Model& model_;
  std::uint64_t weights_bytes_;
  absl::flat_hash_set<std::string> defined_;
  absl::flat_hash_set<std::string> produced_;  // by steps
  int depth_ = 0;
};

}  // namespace

std::uint32_t FormatOf(const proto::Model& model) {
  const bool inside =
      absl::c_any_of(model.steps(), [](const proto::Step& step) { return step.subgraphs_size() > 0; });
  return inside ? kModelFormat : kPlainFormat;
}

absl::Status CheckModel(const proto::Model& model, std::uint64_t weights_bytes) {
  return Checker(model, weights_bytes).Run();
}

}  // namespace troupe::gpu

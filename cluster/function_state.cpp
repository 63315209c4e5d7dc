#include "cluster/function_state.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "cluster/function_table.hpp"
#include "proto/element_size.hpp"

namespace troupe::cluster {

namespace {

using Specs = google::protobuf::RepeatedPtrField<proto::TensorSpec>;

std::string Format(const proto::TensorSpec& spec) {
  return absl::StrCat("'", spec.name(), "' (", proto::DataType_Name(spec.type()), " [",
                      absl::StrJoin(spec.shape(), ", "), "])");
}

absl::StatusOr<const proto::TensorSpec*> FindSpec(const char* what, const Specs& specs,
                                                  const std::string& name) {
  for (const proto::TensorSpec& spec : specs)
    if (spec.name() == name) return &spec;
  const std::string names = absl::StrJoin(
      specs, ", ", [](std::string* out, const auto& spec) { absl::StrAppend(out, spec.name()); });
  return absl::InvalidArgumentError(
      absl::StrCat("the state names ", what, " '", name, "', and the model has none such; it has: ", names));
}

// Nothing for what has no size of its own, or too large a one.
std::optional<std::uint64_t> SizeOf(const proto::TensorSpec& spec) {
  std::uint64_t size = proto::ElementSize(spec.type());
  if (size == 0) return std::nullopt;
  for (const std::int64_t dimension : spec.shape()) {
    if (dimension < 0) return std::nullopt;
    const auto count = static_cast<std::uint64_t>(dimension);
    if (count != 0 && size > std::numeric_limits<std::int64_t>::max() / count) return std::nullopt;
    size *= count;
  }
  return size;
}

}  // namespace

absl::Status ValidateState(const proto::FunctionRecord& record) {
  if (record.state_replicas() > kMostStateReplicas)
    return absl::InvalidArgumentError(absl::StrCat("state_replicas is ", record.state_replicas(),
                                                   "; it is a number from 0 to ", kMostStateReplicas,
                                                   ", of nodes that have copies of the function's state"));
  if (record.state_replicas() > 0 && record.state().empty())
    return absl::InvalidArgumentError(
        absl::StrCat("state_replicas is ", record.state_replicas(),
                     ", and the function keeps no state: name its state too, or leave state_replicas out"));
  std::set<std::string> inputs;
  std::set<std::string> outputs;
  for (const proto::StateTensor& tensor : record.state()) {
    TROUPE_ASSIGN_OR_RETURN(const auto* input, FindSpec("input", record.inputs(), tensor.input()));
    TROUPE_ASSIGN_OR_RETURN(const auto* output, FindSpec("output", record.outputs(), tensor.output()));
    if (!inputs.insert(tensor.input()).second || !outputs.insert(tensor.output()).second) {
      return absl::InvalidArgumentError(absl::StrCat("the state ", tensor.input(), "=", tensor.output(),
                                                     " names a tensor for the second time"));
    }
    const bool same =
        input->type() == output->type() && std::equal(input->shape().begin(), input->shape().end(),
                                                      output->shape().begin(), output->shape().end());
    if (!same || !SizeOf(*input)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a state's input and output have the same numeric type and the same concrete shape; "
          "found input ",
          Format(*input), " and output ", Format(*output), ": export the model with fixed sizes for them"));
    }
  }
  return absl::OkStatus();
}

std::string StateKey(const proto::FunctionRecord& record) {
  return absl::StrCat(record.key().name(), "/", record.key().version(), "@", record.deployed_unix_ns());
}

// Names and versions have no '#'.
std::string SequencePrefix(const std::string& state_key) {
  return absl::StrCat(state_key, "#");
}

std::string SequenceKey(const std::string& state_key, const std::string& sequence) {
  return absl::StrCat(SequencePrefix(state_key), sequence);
}

std::vector<proto::TensorSpec> StateSpecs(const proto::FunctionRecord& record) {
  std::vector<proto::TensorSpec> specs;
  for (const proto::StateTensor& tensor : record.state()) {
    const auto found = FindSpec("input", record.inputs(), tensor.input());
    TROUPE_CHECK(found.ok(), "the state of a deployed function has been validated");
    specs.push_back(**found);
  }
  return specs;
}

Bytes StateBytes(const proto::FunctionRecord& record) {
  Bytes sum;
  for (const proto::TensorSpec& spec : StateSpecs(record)) sum += Bytes(SizeOf(spec).value_or(0));
  return sum;
}

}  // namespace troupe::cluster

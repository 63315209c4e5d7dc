#include "gpu/device/tensor_bytes.hpp"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "gpu/ops/operator.hpp"
#include "gpu/ops/text_room.hpp"

namespace troupe::gpu {
namespace {

bool Fits(const proto::TensorSpec& declared, const proto::TensorSpec& given) {
  if (declared.type() != given.type() || declared.shape_size() != given.shape_size()) return false;
  for (int i = 0; i < declared.shape_size(); ++i) {
    if (declared.shape(i) >= 0 && declared.shape(i) != given.shape(i)) return false;
  }
  return true;
}

}  // namespace

std::string FormatSpec(const proto::TensorSpec& spec) {
  return absl::StrCat(spec.name(), " ", proto::DataType_Name(spec.type()), " [",
                      absl::StrJoin(spec.shape(), ", "), "]");
}

absl::StatusOr<Bytes> ConcreteBytes(const proto::TensorSpec& spec) {
  const std::size_t element = ElementSize(spec.type());
  if (spec.type() == proto::BYTES) return Bytes(spec.text_bytes());
  if (element == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", FormatSpec(spec), ": elements of this type have no fixed size on a device"));
  }
  const absl::StatusOr<std::int64_t> count =
      CountElements({spec.shape().data(), static_cast<std::size_t>(spec.shape_size())});
  if (!count.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", FormatSpec(spec), ": ", count.status().message()));
  }
  return Bytes(static_cast<std::uint64_t>(*count) * element);  // at most 2^40 elements of 8 bytes
}

proto::TensorSpec WithTextRoom(proto::TensorSpec spec) {
  if (spec.type() != proto::BYTES) return spec;
  const auto count = CountElements({spec.shape().data(), static_cast<std::size_t>(spec.shape_size())});
  if (count.ok()) spec.set_text_bytes(TextRoom(*count, Bytes(spec.text_bytes())).count());
  return spec;
}

absl::Status CheckTextBytes(const proto::TensorSpec& spec, Bytes bytes) {
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t count,
                          CountElements({spec.shape().data(), static_cast<std::size_t>(spec.shape_size())}));
  if (bytes > kMaxTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", FormatSpec(spec), " takes ", bytes.count(),
                                                   " bytes with the lengths of its texts; at most ",
                                                   FormatBytes(kMaxTextBytes), " are taken"));
  }
  if (static_cast<std::uint64_t>(count) <= bytes.count() / kTextLength) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor ", FormatSpec(spec), " has ", bytes.count(),
                                                 " bytes, too few for the lengths of ", count, " texts"));
}

absl::StatusOr<std::vector<proto::TensorSpec>> OrderInputs(const proto::Model& model,
                                                           std::span<const proto::TensorSpec> inputs) {
  std::vector<proto::TensorSpec> ordered;
  for (const proto::TensorSpec& declared : model.inputs()) {
    const proto::TensorSpec* found = nullptr;
    for (const proto::TensorSpec& given : inputs) {
      if (given.name() != declared.name()) continue;
      if (found != nullptr) {
        return absl::InvalidArgumentError(absl::StrCat("input ", given.name(), " was given twice"));
      }
      found = &given;
    }
    if (found == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input ", FormatSpec(declared),
          " is missing; given were: ", absl::StrJoin(inputs, ", ", [](std::string* out, const auto& given) {
            absl::StrAppend(out, given.name());
          })));
    }
    if (!Fits(declared, *found)) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", FormatSpec(*found), " was given, the model expects ", FormatSpec(declared)));
    }
    ordered.push_back(WithTextRoom(*found));
    TROUPE_RETURN_IF_ERROR(ConcreteBytes(ordered.back()).status());
  }
  if (ordered.size() != inputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(inputs.size(), " inputs were given, the model has ", ordered.size()));
  }
  return ordered;
}

}  // namespace troupe::gpu

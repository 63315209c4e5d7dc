#include "gpu/worker/run_inputs.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/device/tensor_bytes.hpp"
#include "gpu/worker/limits.hpp"
#include "transport/tensor_channel.hpp"

namespace troupe::gpu {

namespace {

// `rows` has those of the parts before it.
absl::Status CheckContinues(const proto::TensorSpec& before, const proto::TensorSpec& spec,
                            std::int64_t& rows) {
  const bool goes_on = before.name() == spec.name() && before.type() == spec.type() &&
                       spec.shape_size() > 0 && before.shape_size() == spec.shape_size() &&
                       std::equal(before.shape().begin() + 1, before.shape().end(), spec.shape().begin() + 1);
  if (goes_on && !__builtin_add_overflow(rows, spec.shape(0), &rows)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input ", FormatSpec(spec), " is said to continue ",
                                                 FormatSpec(before), ", and does not go with it"));
}

}  // namespace

InputParts PartsOf(const proto::RunOrder& order, std::string_view input) {
  const auto& inputs = order.inputs();
  InputParts parts;
  while (parts.first < inputs.size() && inputs[parts.first].spec().name() != input) ++parts.first;
  parts.last = std::min(parts.first + 1, inputs.size());
  while (parts.last < inputs.size() && inputs[parts.last].continues()) ++parts.last;
  return parts;
}

absl::Status CheckParts(const proto::RunOrder& order) {
  std::set<std::string> names;
  std::int64_t rows = 0;
  std::size_t parts = 0;
  for (int i = 0; i < order.inputs_size(); ++i) {
    const proto::TensorSpec& spec = order.inputs(i).spec();
    if (order.inputs(i).continues()) {
      if (i == 0)
        return absl::InvalidArgumentError(
            absl::StrCat("input ", spec.name(), " is said to continue another, and is the first"));
      TROUPE_RETURN_IF_ERROR(CheckContinues(order.inputs(i - 1).spec(), spec, rows));
      if (++parts > WorkerLimits().tensors)
        return absl::InvalidArgumentError(absl::StrCat("input ", spec.name(), " comes in too many parts"));
      continue;
    }
    parts = 1;
    rows = spec.shape().empty() ? 0 : spec.shape(0);
    if (!names.insert(spec.name()).second)
      return absl::InvalidArgumentError(absl::StrCat("input ", spec.name(), " was given twice"));
    if (names.size() > WorkerLimits().tensors)
      return absl::InvalidArgumentError(
          absl::StrCat(order.inputs_size(), " inputs are too many for one run"));
  }
  return absl::OkStatus();
}

std::vector<proto::TensorSpec> WholeInputs(const proto::RunOrder& order) {
  std::vector<proto::TensorSpec> specs;
  for (const proto::Tensor& tensor : order.inputs()) {
    if (!tensor.continues()) specs.push_back(tensor.spec());
    proto::TensorSpec& whole = specs.back();
    if (tensor.continues()) whole.set_shape(0, whole.shape(0) + tensor.spec().shape(0));
    if (whole.type() == proto::BYTES)
      whole.set_text_bytes((tensor.continues() ? whole.text_bytes() : 0) +
                           transport::SizeOf(tensor.data()).count());
  }
  return specs;
}

Bytes WholeBytes(const proto::RunOrder& order, const InputParts& parts) {
  Bytes bytes;
  for (int i = parts.first; i < parts.last; ++i) bytes += transport::SizeOf(order.inputs(i).data());
  return bytes;
}

}  // namespace troupe::gpu

#include "gpu/worker/run_batch.hpp"

#include "absl/strings/str_cat.h"
#include "gpu/device/tensor_bytes.hpp"

namespace troupe::gpu {
namespace {

using Inputs = google::protobuf::RepeatedPtrField<proto::Tensor>;

// Zero: the inputs of the request do not have one leading dimension, or it is empty.
std::int64_t RowsOf(const Inputs& inputs) {
  std::int64_t rows = 0;
  for (const proto::Tensor& input : inputs) {
    if (input.spec().shape().empty()) return 0;
    if (rows != 0 && input.spec().shape(0) != rows) return 0;
    rows = input.spec().shape(0);
  }
  return rows;
}

bool Alike(const proto::TensorSpec& a, const proto::TensorSpec& b) {
  if (a.name() != b.name() || a.type() != b.type() || a.shape_size() != b.shape_size()) return false;
  for (int i = 1; i < a.shape_size(); ++i)
    if (a.shape(i) != b.shape(i)) return false;
  return true;
}

}  // namespace

absl::Status RunBatch::Check(const proto::RunOrder& order) {
  if (order.members().empty()) return absl::OkStatus();
  if (order.members_size() >= kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", order.members_size() + 1, " requests is too large; at most ", kMost));
  }
  if (!order.stateful().empty() || order.by_layer())
    return absl::InvalidArgumentError(
        "runs with state, and runs whose weights come by layer, are not joined");
  const auto requests = static_cast<std::size_t>(order.members_size()) + 1;
  for (std::size_t request = 0; request < requests; ++request) {
    const Inputs& inputs = InputsOf(order, request);
    if (RowsOf(inputs) <= 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "request ", request, " of a batch does not have one leading dimension for all inputs"));
    }
    if (inputs.size() != order.inputs_size())
      return absl::InvalidArgumentError("the requests of a batch have different inputs");
    for (int i = 0; i < inputs.size(); ++i) {
      if (inputs[i].spec().type() == proto::BYTES)
        return absl::InvalidArgumentError(absl::StrCat(
            "requests with texts are not joined, and a batch has the input ", FormatSpec(inputs[i].spec())));
      if (Alike(inputs[i].spec(), order.inputs(i).spec())) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the requests of a batch differ in more than their leading dimension: ",
                       FormatSpec(order.inputs(i).spec()), " and ", FormatSpec(inputs[i].spec())));
    }
  }
  return absl::OkStatus();
}

RunBatch::RunBatch(const proto::RunOrder& order) {
  if (order.members().empty()) {
    rows_ = {1};
    before_ = {0};
    return;
  }
  all_ = 0;
  for (std::size_t request = 0; request <= static_cast<std::size_t>(order.members_size()); ++request) {
    before_.push_back(all_);
    rows_.push_back(RowsOf(InputsOf(order, request)));
    all_ += rows_.back();
  }
}

proto::TensorSpec RunBatch::Joined(proto::TensorSpec spec) const {
  if (joined()) spec.set_shape(0, all_);
  return spec;
}

proto::TensorSpec RunBatch::SpecOf(std::size_t request, proto::TensorSpec spec) const {
  if (joined()) spec.set_shape(0, rows_[request]);
  return spec;
}

RunBatch::Part RunBatch::PartOf(std::size_t request, Bytes whole) const {
  const std::uint64_t row = whole.count() / static_cast<std::uint64_t>(all_);
  if (!joined()) return {Bytes(0), whole};
  return {Bytes(row * static_cast<std::uint64_t>(before_[request])),
          Bytes(row * static_cast<std::uint64_t>(rows_[request]))};
}

absl::Status RunBatch::CheckDivisible(std::span<const proto::TensorSpec> outputs) const {
  if (!joined()) return absl::OkStatus();
  for (const proto::TensorSpec& output : outputs) {
    if (output.type() != proto::BYTES && !output.shape().empty() && output.shape(0) == all_) continue;
    return absl::UnimplementedError(absl::StrCat("a batch of ", rows_.size(), " requests with ", all_,
                                                 " rows gives the output ", FormatSpec(output),
                                                 ", which cannot be divided among them"));
  }
  return absl::OkStatus();
}

}  // namespace troupe::gpu

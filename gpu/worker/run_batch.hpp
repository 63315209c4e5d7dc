// RUN BATCH: the requests that one run answers, and which part of each tensor is whose. Every tensor of the run
// is theirs one after the other, in the order of the run order: the parts have the size of their leading
// dimensions. A run of one request has all of every tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "proto/worker.pb.h"

namespace troupe::gpu {

class RunBatch {
 public:
  // The most requests of one run.
  static constexpr int kMost = 128;
  // Requests that can be joined: their inputs have the same names, types and shapes but for the leading
  // dimension, which is the same for all inputs of one request; and no state. InvalidArgument says what
  // differs. The tensors themselves have been checked.
  static absl::Status Check(const proto::RunOrder& order);

  explicit RunBatch(const proto::RunOrder& order);

  [[nodiscard]] std::size_t size() const { return rows_.size(); }
  [[nodiscard]] bool joined() const { return rows_.size() > 1; }
  // Of all requests together.
  [[nodiscard]] std::int64_t rows() const { return all_; }
  // The inputs that the order gives for one request.
  [[nodiscard]] static const google::protobuf::RepeatedPtrField<proto::Tensor>& InputsOf(
      const proto::RunOrder& order, std::size_t request) {
    return request == 0 ? order.inputs() : order.members(static_cast<int>(request) - 1).inputs();
  }
  // An input or output of the run as the plan has to have it.
  [[nodiscard]] proto::TensorSpec Joined(proto::TensorSpec spec) const;
  // The same of one request.
  [[nodiscard]] proto::TensorSpec SpecOf(std::size_t request, proto::TensorSpec joined) const;

  struct Part {
    Bytes offset{};
    Bytes size{};
  };
  // What one request has of a tensor that takes `whole` bytes.
  [[nodiscard]] Part PartOf(std::size_t request, Bytes whole) const;

  // Unimplemented when an output of a batch cannot be divided: its leading dimension is not that of the
  // inputs.
  [[nodiscard]] absl::Status CheckDivisible(std::span<const proto::TensorSpec> outputs) const;

 private:
  std::vector<std::int64_t> rows_;    // of each request; not used when there is one
  std::vector<std::int64_t> before_;  // of the requests before it
  std::int64_t all_ = 1;
};

}  // namespace troupe::gpu

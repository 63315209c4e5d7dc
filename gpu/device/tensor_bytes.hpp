// What a launch needs to know of tensors: how many bytes they take, and whether they are what a model
// declares.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/model.pb.h"

namespace troupe::gpu {

// Bytes of a tensor with a concrete shape; of BYTES, what the spec says of it. InvalidArgument, with its name, for -1,
// overflow or an unknown type.
absl::StatusOr<Bytes> ConcreteBytes(const proto::TensorSpec& spec);

// Of BYTES: with as much room as a plan for this tensor has (gpu/ops/text_room.hpp). Others stay.
[[nodiscard]] proto::TensorSpec WithTextRoom(proto::TensorSpec spec);
// Whether so many bytes can be a tensor of texts of this shape.
absl::Status CheckTextBytes(const proto::TensorSpec& spec, Bytes bytes);

// `inputs` in the order in which `model` declares them, those of BYTES with room. InvalidArgument says which tensor is missing,
// unknown, given twice, or differs in type or in a fixed dimension, and what was expected.
absl::StatusOr<std::vector<proto::TensorSpec>> OrderInputs(const proto::Model& model,
                                                           std::span<const proto::TensorSpec> inputs);

// "x FP32 [1, 3, 224, 224]", for messages.
[[nodiscard]] std::string FormatSpec(const proto::TensorSpec& spec);

}  // namespace troupe::gpu

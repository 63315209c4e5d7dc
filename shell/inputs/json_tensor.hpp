// TENSORS IN JSON: nested or flat lists, or an object {"datatype": ..., "shape": ..., "data": ...} as in the
// Open Inference Protocol. Pure.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/tensor.pb.h"

namespace troupe::shell {

// What the file leaves out (type; the shape of a flat list) is taken from the declaration. Numbers must be
// exact for integer types and in range; BYTES are strings, BOOL true and false.
[[nodiscard]] absl::StatusOr<proto::Tensor> ParseJsonTensor(std::string_view text,
                                                            const proto::TensorSpec& declared);

// {"name": ..., "datatype": ..., "shape": ..., "data": [flat]}; numbers that JSON lacks (NaN, infinities) are
// null.
[[nodiscard]] std::string TensorToJson(const proto::Tensor& tensor);
// A text as a JSON string, with its quotes; bytes that are no UTF-8 become '?'.
[[nodiscard]] std::string JsonString(std::string_view text);

}  // namespace troupe::shell

// ONNX TENSORS: the files *_input_0.pb and *_output_0.pb that come with ONNX models (a serialised
// TensorProto). Only the few fields that hold data are read, by hand, so that the shell does not carry the
// ONNX library. Pure.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/tensor.pb.h"

namespace troupe::shell {

// The name is the file's. External data and segments are refused.
[[nodiscard]] absl::StatusOr<proto::Tensor> ParseOnnxTensor(std::string_view file);

}  // namespace troupe::shell

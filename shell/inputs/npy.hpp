// NPY: NumPy's file format, versions 1 to 3 of its header; little-endian numbers in C order. Pure.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/tensor.pb.h"

namespace troupe::shell {

// Types f2 f4 f8, i1..i8, u1..u8, b1. The name of the result is empty.
[[nodiscard]] absl::StatusOr<proto::Tensor> ParseNpy(std::string_view file);
// The bytes of a file. BF16, which NumPy lacks, is written as f4; BYTES cannot be written.
[[nodiscard]] absl::StatusOr<std::string> WriteNpy(const proto::Tensor& tensor);

}  // namespace troupe::shell

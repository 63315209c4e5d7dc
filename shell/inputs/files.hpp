// FILES that commands name: read whole, with a limit, and written so that no half file is left behind.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/tensor.pb.h"

namespace troupe::shell {

[[nodiscard]] absl::StatusOr<std::string> ReadFile(const std::string& path, Bytes most);
// The ONNX file that `path` means: itself, or the only one with the ending .onnx in a folder, as exporters leave it
// beside its weights. InvalidArgument names what the folder has instead.
[[nodiscard]] absl::StatusOr<std::string> FindOnnxFile(const std::string& path);
// Whether WriteFile could begin; what is there already stays as it is.
[[nodiscard]] absl::Status CheckWritable(const std::string& path);
[[nodiscard]] absl::Status WriteFile(const std::string& path, const std::string& content);

// Reads a tensor by the file's suffix (.npy, .pb, .json) and checks it against the declaration; takes its
// name.
[[nodiscard]] absl::StatusOr<proto::Tensor> ReadTensorFile(const std::string& path,
                                                           const proto::TensorSpec& declared);

}  // namespace troupe::shell

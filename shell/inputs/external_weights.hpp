// EXTERNAL WEIGHTS: exporters write large ONNX models as a small file and weights in files beside it. A cluster takes one
// file, so that the weights are put into the model before it is sent. The few fields that matter are read by hand, so that
// the shell does not carry the ONNX library.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"

namespace troupe::shell {

// The ONNX file at `path` with every tensor that it keeps in a file beside it put inside; a model without such tensors
// comes back byte by byte. Neither what is read nor what comes back is larger than `most`. A location is followed only
// below the model's own folder, never through '..' or a symbolic link. InvalidArgument names the file and the reason.
// What is no protobuf message comes back as it is: to judge models is the import's work.
[[nodiscard]] absl::StatusOr<std::string> ReadModelWithWeights(const std::string& path, Bytes most);

}  // namespace troupe::shell

// Functions that a model brings along: each node that calls one becomes the function's nodes, before anything is read.
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace onnx {
class ModelProto;
}

namespace troupe::gpu {

// `opset`: of the model's default domain, which a function must have too. Calls may nest 16 deep and make `max_nodes`
// nodes of 256 MiB in all. Functions in the default domain are not looked at: its operators are known. InvalidArgument or
// Unimplemented names the function, ResourceExhausted the limit.
[[nodiscard]] absl::Status InlineFunctions(onnx::ModelProto& model, int opset, std::size_t max_nodes);

}  // namespace troupe::gpu

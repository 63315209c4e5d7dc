// CLASSIC MODELS (domain ai.onnx.ml) speak of maps. A graph here has tensors, so a file is rewritten while it is read: a
// ZipMap that a model hands out becomes its values under its own name, and its keys as NAME.keys; a row of the two is one
// map.
#pragma once

#include "absl/status/status.h"

namespace onnx {
class ModelProto;
}

namespace troupe::gpu {

inline constexpr const char* kClassicDomain = "ai.onnx.ml";
inline constexpr int kNewestClassic = 5;

// Whether every node is of the classic domain: no opset of ONNX's own matters to such a file.
[[nodiscard]] bool IsClassicOnly(const onnx::ModelProto& model);

// Unimplemented for a version of the domain beyond kNewestClassic.
[[nodiscard]] absl::Status AdaptClassicModel(onnx::ModelProto& model);

}  // namespace troupe::gpu

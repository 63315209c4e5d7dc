// CLASSIC MODELS (domain ai.onnx.ml) speak of maps and of texts. A graph here has tensors of numbers, so a file
// is rewritten while it is read:
//   - a ZipMap that a model hands out becomes tensors: its values under its own name and, where its keys are
//     whole numbers, these as NAME.keys; a row of the two is one map;
//   - a classifier whose classes are texts tells their places in classlabels_strings.
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

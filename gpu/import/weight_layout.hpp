// Writes a graph down as a canonical model: weights in the order of their first use, 64-byte aligned, equal
// contents once.
#pragma once

#include "absl/status/statusor.h"
#include "gpu/import/onnx_reader.hpp"

namespace troupe::gpu {

// Where each weight begins in the blob, in multiples of this.
inline constexpr Bytes kWeightAlignment = Bytes(64);

// Takes the graph apart while it writes, so that weights are not held twice for longer than one tensor.
[[nodiscard]] absl::StatusOr<ImportedModel> LayOut(Graph graph, const ImportOptions& options);

}  // namespace troupe::gpu

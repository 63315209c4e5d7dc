// IMPORT: an ONNX file becomes the canonical model that everything after it runs.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "gpu/import/onnx_reader.hpp"

namespace troupe::gpu {

// Reads, checks, simplifies and lays out. Deterministic: one file and one set of options give one digest.
// Takes time and memory that a hostile file chooses, so outside tests it runs inside troupe-import's limits.
[[nodiscard]] absl::StatusOr<ImportedModel> ImportOnnx(std::span<const std::byte> file,
                                                       const ImportOptions& options);

}  // namespace troupe::gpu

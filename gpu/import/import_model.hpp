// IMPORT: an ONNX file becomes the canonical model that everything after it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "gpu/import/onnx_reader.hpp"
#include "proto/stage_wish.hpp"

namespace troupe::gpu {

// Reads, checks, simplifies and lays out. Deterministic: one file and one set of options give one digest.
// Takes time and memory that a hostile file chooses, so outside tests it runs inside troupe-import's limits.
[[nodiscard]] absl::StatusOr<ImportedModel> ImportOnnx(std::span<const std::byte> file,
                                                       const ImportOptions& options);

// What an import does with the models that it makes.
struct StageOutputs {
  // Where the weights of this stage go, from 1. May be empty: they are kept in memory.
  std::function<WeightsOutput*(std::uint32_t stage)> weights = {};
  // Takes a stage's model. An error ends the import.
  std::function<absl::Status(ImportedModel stage)> take;
};

// The same for a model that may be divided: its stages in their order, one at a time; one stage when it is not divided.
[[nodiscard]] absl::Status ImportStages(std::span<const std::byte> file, const ImportOptions& options,
                                        const proto::StageBounds& bounds, const StageOutputs& outputs);

}  // namespace troupe::gpu

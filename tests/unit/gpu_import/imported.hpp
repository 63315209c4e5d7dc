// Imports files that tests build, and runs what comes of them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gpu/import/import_model.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"
#include "tests/unit/gpu_import/onnx_builder.hpp"

namespace troupe::gpu::test {

inline absl::StatusOr<ImportedModel> Import(const OnnxBuilder& builder) {
  const std::string file = builder.File();
  return ImportOnnx(AsBytes(file), {});
}

// The importer's error, or "accepted".
inline std::string Refusal(const OnnxBuilder& builder) {
  const auto imported = Import(builder);
  return imported.ok() ? "accepted" : std::string(imported.status().message());
}

// The first output, of FP32.
inline absl::StatusOr<std::vector<float>> Answer(const ImportedModel& imported,
                                                 const std::vector<std::span<const std::byte>>& inputs) {
  const std::vector<proto::TensorSpec> specs(imported.model.inputs().begin(), imported.model.inputs().end());
  TROUPE_ASSIGN_OR_RETURN(const auto plan, Plan::Build(imported.model, imported.weights, specs, 1));
  TROUPE_ASSIGN_OR_RETURN(const PlanResult result, RunPlan(*plan, imported.weights, inputs));
  return result.As<float>(0);
}

template <class T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace troupe::gpu::test

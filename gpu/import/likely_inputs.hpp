// LIKELY INPUTS: the inputs that an imported model is packed and judged for. Other shapes than these stay correct.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "gpu/import/onnx_reader.hpp"

namespace troupe::gpu {

using InputSpecs = std::vector<proto::TensorSpec>;

// Does something for inputs of one row, of sizes that the model is likely to work with; `work` gets them. Other sizes are tried
// while `work` answers InvalidArgument; when none is left, its first answer is returned.
[[nodiscard]] absl::Status ForLikelyInputs(const ImportedModel& imported,
                                           const std::function<absl::Status(const InputSpecs&)>& work);

// The sizes of the open dimensions of these inputs but each input's first, in order (ImportReport.likely_sizes).
[[nodiscard]] std::vector<std::uint32_t> LikelySizes(const ImportedModel& imported, const InputSpecs& inputs);
// Of a stage, the inputs' first dimensions, if that of an open one is not 1 (ImportReport.likely_rows).
[[nodiscard]] std::vector<std::uint32_t> LikelyRows(const ImportedModel& imported);

}  // namespace troupe::gpu

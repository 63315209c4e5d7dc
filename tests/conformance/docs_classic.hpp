// The section of docs/onnx.md about classic models.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/onnx_case.hpp"

namespace troupe::gpu::conformance {

// Whether the section lists this operator of the table.
[[nodiscard]] bool IsClassic(const std::string& name);
// `cases`: those of LoadClassicCases.
[[nodiscard]] std::string ClassicModels(const std::vector<OnnxCase>& cases);

}  // namespace troupe::gpu::conformance

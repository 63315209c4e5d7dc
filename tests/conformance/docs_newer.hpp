// The part of docs/onnx.md on the opsets that came after ONNX's packaged test data.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/onnx_case.hpp"

namespace troupe::gpu::conformance {

// `cases`: those of LoadOpsetCases, which are counted by opset.
[[nodiscard]] std::string NewerOpsets(const std::vector<OnnxCase>& cases);

}  // namespace troupe::gpu::conformance

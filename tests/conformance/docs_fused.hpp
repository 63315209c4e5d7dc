// The part of docs/onnx.md on the operators that optimised files contain.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/onnx_case.hpp"

namespace troupe::gpu::conformance {

// `cases`: those of LoadOpsetCases; the fused ones are counted by operator.
[[nodiscard]] std::string FusedOperators(const std::vector<OnnxCase>& cases);

}  // namespace troupe::gpu::conformance

// Whether a case lies within what the operator table declares, and if not, why.
#pragma once

#include <string>

#include "gpu/ops/operator.hpp"
#include "tests/conformance/onnx_case.hpp"

namespace troupe::gpu::conformance {

// Empty when every operator of the model, its version and its types are declared: such a case must pass.
// Decided by what the model says, never by the case's name.
[[nodiscard]] std::string WhyNotDeclared(const OnnxCase& test);

// "BOOL, INT32": the names of a set, in the order of the enumeration.
[[nodiscard]] std::string FormatTypes(TypeSet types);

}  // namespace troupe::gpu::conformance

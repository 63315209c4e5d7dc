// Runs one case through the importer's reader and a plan, and compares.
#pragma once

#include "absl/status/status.h"
#include "tests/conformance/onnx_case.hpp"

namespace troupe::gpu::conformance {

// What else than a plain run was needed.
struct RunNotes {
  // Inputs that decide a shape were given as constants, as every exported network has them: nothing bounds
  // the output without them.
  bool constant_shapes = false;
};

// OK when every output of every data set has the expected type and shape, and values within rtol 1e-3 and
// atol 1e-5 (integers and truth values: equal; FP16 and BF16: within their precision).
[[nodiscard]] absl::Status RunCase(const OnnxCase& test, RunNotes& notes);

}  // namespace troupe::gpu::conformance

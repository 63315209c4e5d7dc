// Runs one case through the importer's reader and a plan, and compares.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "gpu/engine/plan.hpp"
#include "gpu/import/onnx_reader.hpp"
#include "tests/conformance/onnx_case.hpp"

namespace troupe::gpu::conformance {

// What was needed beside a plain run.
struct RunNotes {
  // Inputs that decide a shape were given as constants, as every exported network has them: nothing bounds
  // the output without them.
  bool constant_shapes = false;
};

// Makes the plan that runs the case: the CPU's, or one of another device.
using PlanMaker = std::function<absl::StatusOr<std::unique_ptr<Plan>>(
    const proto::Model& model, std::span<const std::byte> weights, std::span<const proto::TensorSpec> inputs,
    int threads)>;

struct RunOptions {
  PlanMaker make = Plan::Build;
  // Of FP32 and FP64; integers and truth values must be equal, FP16 and BF16 within their precision.
  double rtol = 1e-3;
  double atol = 1e-5;
  double of_largest = 0;  // and this much of the output's largest magnitude
  // Through every pass of the importer, as a deployment goes; else as the file has it.
  bool simplify = false;
  // And packed for this machine.
  bool pack = false;
  proto::Precision precision = proto::PRECISION_FP32;  // in which weights may be packed
};

// OK when every output of every data set has the expected type and shape, and values within the tolerances.
[[nodiscard]] absl::Status RunCase(const OnnxCase& test, RunNotes& notes, const RunOptions& options = {});

// Plans a model that some file gave and runs it on zeros, each dynamic dimension being 3. An error is an answer as
// good as a result. A model that wants much memory is not run.
[[nodiscard]] absl::Status RunOnZeros(const ImportedModel& model);

}  // namespace troupe::gpu::conformance

// Reads a workflow file (YAML) into proto::WorkflowSpec:
//
//   name: ensemble
//   version: "2"                       # optional: the next one
//   inputs:
//     image: {type: FP32, shape: [-1, 1, 8, 8]}
//   steps:
//     - name: left
//       function: net-a
//       version: "1"                   # optional: the newest at the time of the call
//       inputs: {x: image}             # a workflow input, or STEP.OUTPUT
//       fan_out: {input: x, dimension: 0}   # optional
//       timeout: 5s                    # optional
//   outputs:
//     probabilities: left.y
//
// The text is not trusted: unknown keys, wrong kinds, repeated names, aliases that grow and sizes are errors
// with their line. Every error is reported, not only the first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/tensor.pb.h"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

struct WorkflowError {
  std::uint32_t line = 0;  // from 1; 0: the file as a whole
  std::string message{};
};
// InvalidArgument: one line per error, "line 7: ...", in the order of lines.
[[nodiscard]] absl::Status WorkflowErrors(std::string_view workflow, std::vector<WorkflowError> errors);

struct WorkflowLimits {
  std::size_t max_text = 1 << 20;
  std::size_t max_steps = 1000;
  std::size_t max_inputs = 1000;
  std::size_t max_rank = 8;
};

[[nodiscard]] absl::StatusOr<proto::WorkflowSpec> ParseWorkflow(std::string_view text,
                                                                const WorkflowLimits& limits = {});
// "FP32" -> proto::FP32; DATA_TYPE_UNSPECIFIED when there is no such type.
[[nodiscard]] proto::DataType ParseDataType(std::string_view name);

}  // namespace troupe::cluster

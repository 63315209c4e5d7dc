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
//       inputs: {x: [found.crop, image]}    # a workflow input, or STEP.OUTPUT; of a list the first that is there
//       when: found.any                # optional: the step runs if this is not zero
//       for_each: {input: x, dimension: 0, most: 64, at_once: 8}   # optional: one call for each element
//       timeout: 5s                    # optional
//       retries: 2                     # optional: of each call
//       on_error: {step: small}        # optional; or {values: {y: other.y}}
//       durable: bytes                 # optional: or lineage; by cost
//     - name: inner
//       workflow: digits               # instead of a function
//       inputs: {image: image}
//   outputs:
//     probabilities: left.y
//
// The text is not trusted: unknown keys, wrong kinds, repeated names, aliases that grow and sizes are mistakes,
// each told with its line. All are found, not only the first.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/workflows/mistakes.hpp"
#include "proto/tensor.pb.h"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

struct WorkflowLimits {
  std::size_t max_text = 1 << 20;
  std::size_t max_steps = 1000;
  std::size_t max_inputs = 1000;
  std::size_t max_rank = 8;
  std::size_t max_fallbacks = 7;  // values of a binding behind its first
};

// A file as far as it can be read.
struct ReadWorkflowFile {
  proto::WorkflowSpec spec{};
  bool readable = true;  // it is YAML, and not too large
  // Nothing is missing that other parts may refer to. Values that could not be read are left empty, and an input
  // without type or shape has neither.
  bool whole = true;
};
[[nodiscard]] ReadWorkflowFile ReadWorkflowText(std::string_view text, Mistakes& mistakes,
                                                const WorkflowLimits& limits = {});
[[nodiscard]] absl::StatusOr<proto::WorkflowSpec> ParseWorkflow(std::string_view text,
                                                                const WorkflowLimits& limits = {});
// "FP32" -> proto::FP32; DATA_TYPE_UNSPECIFIED when there is no such type.
[[nodiscard]] proto::DataType ParseDataType(std::string_view name);

}  // namespace troupe::cluster

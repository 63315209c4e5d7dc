// Checks a workflow against the functions that exist: cycles (named), unknown functions, steps and tensors,
// types and shapes (-1 fits anything), fan-out, unused and missing inputs, outputs. All errors are reported,
// each with its line.
#pragma once

#include "absl/status/statusor.h"
#include "cluster/function_table.hpp"
#include "cluster/workflow_parser.hpp"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

// The record to store: the spec and the specs of its outputs (version and times are the registry's).
[[nodiscard]] absl::StatusOr<proto::WorkflowRecord> ValidateWorkflow(const proto::WorkflowSpec& spec,
                                                                     const FunctionTable& functions);

// "step.output" in its two parts; a workflow input has no step.
struct ValueRef {
  std::string step{};  // "": a workflow input
  std::string name{};
};
[[nodiscard]] ValueRef ParseValue(const std::string& value);

}  // namespace troupe::cluster

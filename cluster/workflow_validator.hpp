// Checks a workflow against the functions and workflows that exist: circles (named), unknown functions, steps and
// tensors, types and shapes (-1 fits anything), conditions, for_each, what stands in for what fails, unused and
// missing inputs, outputs. Every mistake is reported, with its line.
#pragma once

#include "absl/status/statusor.h"
#include "cluster/function_table.hpp"
#include "cluster/workflow_parser.hpp"
#include "cluster/workflows/nesting.hpp"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

[[nodiscard]] inline FindWorkflow NoWorkflows() {
  return [](const std::string&, const std::string&) { return nullptr; };
}
// The record to store: the spec, with the outputs that each step's function or workflow declares, and the specs of its
// outputs (version and times are the registry's).
[[nodiscard]] absl::StatusOr<proto::WorkflowRecord> ValidateWorkflow(
    const proto::WorkflowSpec& spec, const FunctionTable& functions,
    const FindWorkflow& workflows = NoWorkflows());
// Reads the text of a file and checks it: one answer tells what cannot be read and what does not fit.
[[nodiscard]] absl::StatusOr<proto::WorkflowRecord> CheckWorkflow(
    std::string_view text, const FunctionTable& functions, const FindWorkflow& workflows = NoWorkflows());

}  // namespace troupe::cluster

// WORKFLOW GRAPH: the steps of a workflow as a drawing, for a terminal and as SVG, with the states of one run's steps where
// they are asked for. Pure.
#pragma once

#include <string>
#include <vector>

#include "proto/workflow.pb.h"
#include "shell/text/text.hpp"

namespace troupe::shell {

// An arrow between two steps.
struct GraphArrow {
  enum class Kind { kInput, kFallback, kCondition, kOnError };
  std::size_t from = 0;
  std::size_t to = 0;
  Kind kind = Kind::kInput;
};
enum class StepState { kUnknown, kWaits, kRuns, kCommitted, kSkipped, kFailed };
struct GraphStep {
  std::string name{};
  std::string calls{};  // the function, or "workflow NAME"
  std::string note{};   // "for each x", "when go"; may be empty
  StepState state = StepState::kUnknown;
  std::vector<std::string>
      reads{};  // for the terminal: inputs of the workflow and steps, each with how it is read
};
struct WorkflowGraph {
  std::string title{};
  std::vector<GraphStep> steps{};
  std::vector<GraphArrow> arrows{};
  std::vector<std::string> outputs{};  // "y: last.y"
};

// `run`: of this workflow, or null. A step that has not ended waits when a step that it reads has not ended, and else
// runs; when the run has ended, it waits.
[[nodiscard]] WorkflowGraph GraphOf(const proto::WorkflowSpec& spec, const proto::RunRecord* run);
[[nodiscard]] std::string GraphText(const WorkflowGraph& graph, const Style& style);
[[nodiscard]] std::string GraphSvg(const WorkflowGraph& graph);

}  // namespace troupe::shell

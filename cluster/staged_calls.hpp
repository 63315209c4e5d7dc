// Steps that call models in stages.
#pragma once

#include "cluster/function_table.hpp"
#include "cluster/workflows/nesting.hpp"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

// A model in stages is called as a function is, and runs as a workflow: a step whose function is such a model calls that workflow.
inline void CallStagedModels(const FunctionTable& functions, const FindWorkflow& workflows,
                             proto::WorkflowSpec& spec) {
  for (auto& step : *spec.mutable_steps()) {
    if (step.function().empty() || functions.VersionsOf(step.function()) != nullptr) continue;
    const auto* called = workflows(step.function(), step.version());
    if (called == nullptr || called->spec().stages() == 0) continue;
    step.set_workflow(step.function());
    step.clear_function();
  }
}

}  // namespace troupe::cluster

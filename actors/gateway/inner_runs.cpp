#include "actors/gateway/inner_runs.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/gateway/view_cell.hpp"
#include "cluster/slo/step_trace.hpp"
#include "cluster/workflows/inner_run.hpp"
#include "cluster/workflows/nesting.hpp"

namespace troupe::actors {

absl::StatusOr<WorkflowRunActor> SpawnInnerRun(caf::actor_system& system, const WorkflowRunOptions& outer,
                                               const proto::WorkflowStep& step, std::uint64_t call,
                                               std::uint32_t recomputed, const RouterActor& router,
                                               const ClusterManagerActor& manager,
                                               transport::TensorChannel& channel) {
  // Workflows that call each other are refused when they are submitted; this holds whatever is in the store.
  if (outer.depth + 2 > cluster::Nesting::kDeepest) {
    return absl::FailedPreconditionError(absl::StrCat("the run of workflow '", step.workflow(), "' would be ",
                                                      outer.depth + 2, " deep inside other runs, and ",
                                                      cluster::Nesting::kDeepest, " are supported"));
  }
  const auto view = outer.view ? outer.view->Get() : nullptr;
  const auto* workflow = view ? view->FindWorkflow(step.workflow(), step.version()) : nullptr;
  if (workflow == nullptr) {
    const auto version = step.version().empty() ? "" : absl::StrCat(" version ", step.version());
    return absl::NotFoundError(absl::StrCat("there is no workflow '", step.workflow(), "'", version));
  }
  WorkflowRunOptions options = outer;
  options.run = cluster::InnerRunKey(outer.run, step.name(), call, recomputed);
  options.keyed = true;
  options.record.reset();
  options.parent = outer.run;
  options.parent_step = step.name();
  options.depth = outer.depth + 1;
  options.trace = cluster::StepTrace(outer.trace, step, call);
  options.seed = outer.seed + 1 + call;
  auto run = SpawnWorkflowRun(system, std::move(options), workflow->spec(), router, manager, channel);
  if (outer.adopt) outer.adopt(run, manager);
  return run;
}

}  // namespace troupe::actors

// INNER RUNS: the runs of workflows that the steps of a run call. Each is a run of its own, with a key that follows from the
// outer run's, so that a gateway which goes on with the outer run finds it, as it finds any run by its key.
#pragma once

#include <caf/actor_system.hpp>
#include <cstdint>

#include "absl/status/statusor.h"
#include "actors/gateway/workflow_run.hpp"

namespace troupe::actors {

// The run of one call of `step`, made when it is asked. `outer`: of the run whose step it is. NotFound: this gateway knows
// no such workflow. FailedPrecondition: it would be too deep inside other runs.
[[nodiscard]] absl::StatusOr<WorkflowRunActor> SpawnInnerRun(
    caf::actor_system& system, const WorkflowRunOptions& outer, const proto::WorkflowStep& step,
    std::uint64_t call, std::uint32_t recomputed, const RouterActor& router,
    const ClusterManagerActor& manager, transport::TensorChannel& channel);

}  // namespace troupe::actors

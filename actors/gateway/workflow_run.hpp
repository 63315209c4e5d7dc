// Spawns one run of a workflow (interface and contract: actors/interfaces/workflow_run.hpp).
#pragma once

#include <caf/actor_system.hpp>
#include <string>

#include "actors/interfaces/cluster_manager.hpp"
#include "actors/interfaces/router.hpp"
#include "actors/interfaces/workflow_run.hpp"
#include "proto/workflow.pb.h"
#include "transport/tensor_channel.hpp"

namespace troupe::actors {

struct WorkflowRunOptions {
  std::string run;      // key of the run
  std::string gateway;  // this member's name
  Duration default_timeout = std::chrono::seconds(60);
  Duration commit_timeout = std::chrono::seconds(10);
  // An end that the run log does not take (a full disk, a manager that is away) is offered again so often.
  Duration end_retry = std::chrono::seconds(1);
  std::uint32_t end_tries = 60;
  std::uint64_t inline_bytes = 1u << 20;  // larger tensors become blobs of the manager
};

// The run ends itself once it has answered and its end is stored. `channel` outlives it.
WorkflowRunActor SpawnWorkflowRun(caf::actor_system& system, WorkflowRunOptions options,
                                  proto::WorkflowSpec spec, RouterActor router, ClusterManagerActor manager,
                                  transport::TensorChannel& channel);

}  // namespace troupe::actors

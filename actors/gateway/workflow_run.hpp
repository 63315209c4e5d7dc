// Spawns one run of a workflow (interface and contract: actors/interfaces/workflow_run.hpp).
#pragma once

#include <caf/actor_system.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/interfaces/cluster_manager.hpp"
#include "actors/interfaces/router.hpp"
#include "actors/interfaces/workflow_run.hpp"
#include "cluster/step_retry.hpp"
#include "proto/workflow.pb.h"
#include "transport/tensor_channel.hpp"

namespace troupe::actors {

class ViewCell;

struct WorkflowRunOptions {
  std::string run;      // key of the run
  std::string gateway;  // this member's name
  // The client chose the key and may ask again with it: when it goes away, the run goes on.
  bool keyed = false;
  // The manager's run log has the run, so that it outlives this gateway. A model in stages is asked as a function is: without a
  // log, without a manager, and again by its client when the gateway dies.
  bool logged = true;
  // A run that this gateway was told to go on with: no client asks for it, and its inputs are in the log.
  std::optional<proto::RunRecord> record;
  Duration default_timeout = std::chrono::seconds(60);
  Duration longest_timeout = std::chrono::hours(24);  // of what a client asks for
  Duration commit_timeout = std::chrono::seconds(10);
  // An end that the run log does not take (a full disk) is offered again so often.
  Duration end_retry = std::chrono::seconds(1);
  std::uint32_t end_tries = 60;
  // A committed result that is lost, with its blob or with the worker that kept it, is computed anew so often, of each
  // step.
  std::uint32_t most_recomputed = 16;
  // A call of a step that fails for a passing reason is made again within the run's timeout, and the step's.
  cluster::RetryLimits retry{};
  std::uint64_t seed = 0;                 // of the pauses between such calls
  std::uint64_t inline_bytes = 1u << 20;  // larger tensors become blobs of the manager
  // Where steps find the workflows that they call; null: they call functions only.
  std::shared_ptr<ViewCell> view{};
  // Told of each run that a step begins, and which manager that run knows: who adopts it tells it of managers from then
  // on, and ends it. Called in the run's thread.
  std::function<void(const WorkflowRunActor&, const ClusterManagerActor&)> adopt{};
  std::string parent{};  // the run whose step this run is; "": of a client
  std::string parent_step{};
  std::uint32_t depth = 0;  // how many runs it is inside of
  // The requests of its steps have ids that begin with this, by which `troupe why` finds them (cluster/slo/step_trace.hpp).
  std::string trace{};
};

// The run ends itself once it has answered and its end is stored. `channel` outlives it. Its spawner tells it
// PeerUp and PeerLost of the manager (as a PeerWatcherActor); `manager` is the manager that is there now.
WorkflowRunActor SpawnWorkflowRun(caf::actor_system& system, WorkflowRunOptions options,
                                  proto::WorkflowSpec spec, RouterActor router, ClusterManagerActor manager,
                                  transport::TensorChannel& channel);

}  // namespace troupe::actors

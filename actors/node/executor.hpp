// Spawns the executor of one GPU (interface and contract: actors/interfaces/executor.hpp).
#pragma once

#include <caf/actor_system.hpp>
#include <memory>
#include <string>

#include "actors/interfaces/executor.hpp"
#include "actors/seams/worker_link.hpp"
#include "node/runtimes/executor_machine.hpp"

namespace troupe::actors {

// The actor that hears about the worker's life: the node controller.
using ExecutorListener = Interface<Hears<proto::ExecutorReport>>;

struct ExecutorLimits {
  node::SupervisionLimits supervision;
  Duration watch_every = std::chrono::milliseconds(500);
  std::size_t backlog = 1024;  // orders that wait for room in the ring; more are RESOURCE_EXHAUSTED
};

// `label` names it to people: "GPU 1".
ExecutorActor SpawnExecutor(caf::actor_system& system, std::uint32_t gpu, const std::string& label,
                            std::unique_ptr<WorkerLink> link, ExecutorListener listener,
                            ExecutorLimits limits);

}  // namespace troupe::actors

// Spawns the node controller (interface and contract: actors/interfaces/node_controller.hpp).
#pragma once

#include <caf/actor_system.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/interfaces/cache.hpp"
#include "actors/interfaces/node_controller.hpp"
#include "actors/member/lease.hpp"
#include "actors/node/executor.hpp"
#include "actors/node/remote_inputs.hpp"
#include "actors/node/state_store.hpp"
#include "base/policy.hpp"
#include "node/models/cache_table.hpp"
#include "node/models/profiles.hpp"
#include "node/scheduling/swap_scheduler.hpp"
#include "node/scheduling/topology.hpp"

namespace troupe::actors {

struct GpuSetup {
  std::string device;  // "virtual:0"
  Bytes memory;
};

// With whom functions share a worker, and how many workers stand on each GPU.
struct IsolationOptions {
  proto::Isolation mode = proto::ISOLATION_SHARED;  // of functions that do not say
  std::uint32_t runtimes = 1;                       // of each GPU, each with its part of the memory
  Duration idle = std::chrono::minutes(10);         // after which a runtime serves nobody again
};

struct NodeOptions {
  std::string name;
  std::vector<GpuSetup> gpus;
  IsolationOptions isolation;  // with several runtimes, or another mode than shared: scheduler.isolated
  // The link to the worker of runtime `index`, of GPU index / isolation.runtimes; called once for each, when
  // the controller starts.
  std::function<std::unique_ptr<WorkerLink>(std::uint32_t index)> make_link;
  std::function<void(const std::string& kind, const std::string& message)>
      on_event;  // for the log; may be empty
  PolicyNames policies;
  // Brings inputs of other hosts here; outlives the actor. Null: none are brought.
  transport::TensorChannel* channel = nullptr;
  RemoteInputLimits remote_inputs;
  std::shared_ptr<const Lease> lease = std::make_shared<Lease>();  // kept by the member
  StateStoreOptions states;  // images of what functions keep on the device
  // A run with state is answered when its state has been written back; false: that is done when its model
  // leaves the device.
  bool write_back_each_run = true;
  node::SchedulerLimits scheduler;
  node::CacheLimits copies;      // of the host region
  node::Topology topology;       // of the GPUs, by their index here
  CostDefaults costs;            // until the node has learned better
  proto::NodeProfiles profiles;  // what it had learned when it ended
  // Told what it has learned, when that is more than the last time; must return at once. May be empty.
  std::function<void(proto::NodeProfiles)> save_profiles;
  // Functions that it had adopted when it ended (only their records count), and how newer ones are handed
  // over, as save_profiles. They are adopted again when no manager was heard after `remember_after`.
  proto::ClusterUpdate remembered;
  std::function<void(proto::ClusterUpdate)> save_adopted;
  Duration remember_after = std::chrono::seconds(1);
  Duration save_adopted_after = std::chrono::milliseconds(500);  // of a change: many come together
  ExecutorLimits executor;
  // Whether what a model costs is measured when it was adopted, or learned from its requests only.
  bool trials = false;
  // Whether what a dead worker held comes to the other GPUs by itself, or when it is asked for.
  bool refill = false;
  std::uint64_t credits_per_gpu = 8;
  Duration adopt_timeout = std::chrono::minutes(5);    // fetch one model, or place it
  Duration prepare_timeout = std::chrono::minutes(1);  // primitives of one plan
  Duration describe_timeout = std::chrono::seconds(1);
  Duration save_profiles_every = std::chrono::seconds(10);
  // How long a worker that was adopted keeps models that nobody has told this node of.
  Duration stranger_grace = std::chrono::seconds(3);
  // How long a broadcast of a model to several GPUs waits for more of them.
  Duration broadcast_gather = std::chrono::microseconds(500);
  Duration grant_every = std::chrono::milliseconds(20);  // changes of residency are told at most this often
};

// InvalidArgument for a policy that does not exist.
absl::StatusOr<NodeControllerActor> SpawnNodeController(caf::actor_system& system, NodeOptions options,
                                                        CacheActor cache);

}  // namespace troupe::actors

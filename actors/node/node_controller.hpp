// Spawns the node controller (interface and contract: actors/interfaces/node_controller.hpp).
#pragma once

#include <caf/actor_system.hpp>
#include <functional>
#include <memory>
#include <string>

#include "actors/interfaces/cache.hpp"
#include "actors/interfaces/node_controller.hpp"
#include "actors/member/lease.hpp"
#include "actors/node/executor.hpp"
#include "actors/node/meter_access.hpp"
#include "actors/node/remote_inputs.hpp"
#include "actors/node/state_store.hpp"
#include "node/settings.hpp"

namespace troupe::actors {

// What the node decides by, and what the actor carries its effects out with.
struct NodeOptions : node::NodeSettings {
  // The link to the worker of runtime `index`, of GPU index / isolation.runtimes; called once for each, when
  // the controller starts.
  std::function<std::unique_ptr<WorkerLink>(std::uint32_t index)> make_link;
  std::function<void(const std::string& kind, const std::string& message)>
      on_event;  // for the log; may be empty
  // Brings inputs of other hosts here; outlives the actor. Null: none are brought.
  transport::TensorChannel* channel = nullptr;
  RemoteInputLimits remote_inputs;
  std::shared_ptr<const Lease> lease = std::make_shared<Lease>();  // kept by the member
  StateStoreOptions states;  // images of what functions keep on the device
  // Told what the node has learned, or adopted, when that has changed; must return at once. May be empty.
  // `saved` is called on any thread, once what is saved is durable or the disk has refused it.
  using Saved = std::function<void(absl::Status)>;
  std::function<void(proto::NodeProfiles, Saved saved)> save_profiles;
  std::function<void(proto::ClusterUpdate, Saved saved)> save_adopted;
  MeterAccess metering;  // what functions use is counted unless this is empty
  ExecutorLimits executor;
  Duration adopt_timeout = std::chrono::minutes(5);  // fetch one model, or place it
  Duration describe_timeout = std::chrono::seconds(1);
};

// InvalidArgument for a policy that does not exist.
absl::StatusOr<NodeControllerActor> SpawnNodeController(caf::actor_system& system, NodeOptions options,
                                                        CacheActor cache);

}  // namespace troupe::actors

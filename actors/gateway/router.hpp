// Spawns the router (interface and contract: actors/interfaces/router.hpp).
#pragma once

#include <caf/actor_system.hpp>
#include <functional>
#include <memory>
#include <string>

#include "actors/interfaces/router.hpp"
#include "actors/seams/peer_directory.hpp"
#include "base/policy.hpp"
#include "cluster/cluster_view.hpp"
#include "cluster/request_book.hpp"

namespace troupe::actors {

// What the gateway's threads may read of the router's view: replaced as a whole, never changed.
using ViewSnapshot = std::shared_ptr<const cluster::ClusterView>;

struct RouterOptions {
  std::string gateway;   // this member's name
  std::uint64_t id = 0;  // of this incarnation; never used by another router
  PolicyNames policies;
  cluster::RouterLimits limits;
  Duration call_slack = std::chrono::seconds(2);  // a node that is this late with an answer counts as lost
  Duration hello_every = std::chrono::milliseconds(250);
  Duration hello_timeout = std::chrono::seconds(1);
  // Told of every change of the view and of the number of nodes that grant credits; called in the actor.
  std::function<void(ViewSnapshot, std::size_t nodes)> on_view;
  // Told of each request that ends (for metrics); called in the actor.
  std::function<void(const proto::InferReply&, Duration took)> on_answer;
};

// `directory` outlives the actor. InvalidArgument for a policy that does not exist.
absl::StatusOr<RouterActor> SpawnRouter(caf::actor_system& system, RouterOptions options,
                                        PeerDirectory& directory);

}  // namespace troupe::actors

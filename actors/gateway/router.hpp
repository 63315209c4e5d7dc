// Spawns the router (interface and contract: actors/interfaces/router.hpp).
#pragma once

#include <caf/actor_system.hpp>
#include <functional>
#include <memory>
#include <string>

#include "actors/gateway/view_cell.hpp"
#include "actors/interfaces/router.hpp"
#include "actors/seams/peer_directory.hpp"
#include "base/policy.hpp"
#include "cluster/cluster_view.hpp"
#include "cluster/request_book.hpp"

namespace troupe::actors {

struct RouterOptions {
  std::string gateway;   // this member's name
  std::uint64_t id = 0;  // of this incarnation; never used by another router
  PolicyNames policies;
  cluster::RouterLimits limits;
  Duration call_slack = std::chrono::seconds(2);  // a node that is this late with an answer counts as lost
  Duration hello_every = std::chrono::milliseconds(250);
  Duration hello_timeout = std::chrono::seconds(1);
  std::shared_ptr<ViewCell> view = std::make_shared<ViewCell>();  // kept up to date by the router
  // Told of each request that ends (for metrics); called in the actor.
  std::function<void(const proto::InferReply&, Duration took)> on_answer;
};

// `directory` outlives the actor. InvalidArgument for a policy that does not exist.
absl::StatusOr<RouterActor> SpawnRouter(caf::actor_system& system, RouterOptions options,
                                        PeerDirectory& directory);

}  // namespace troupe::actors

// Spawns the router (interface and contract: actors/interfaces/router.hpp) and says how threads outside
// actors reach it.
#pragma once

#include <caf/actor_system.hpp>
#include <functional>
#include <memory>
#include <string>

#include "actors/core/inbox.hpp"
#include "actors/gateway/servable_models.hpp"
#include "actors/gateway/view_cell.hpp"
#include "actors/interfaces/router.hpp"
#include "actors/member/lease.hpp"
#include "actors/seams/peer_directory.hpp"
#include "base/policy.hpp"
#include "cluster/cluster_view.hpp"
#include "cluster/request_table.hpp"
#include "cluster/slo/slo_tracker.hpp"

namespace troupe::actors {

// What a thread can ask of the router through its inbox. It saves one message on the way in and one on the
// way out, compared with going through another actor.
class RouterClient {
 public:
  using Done = std::function<void(proto::InferReply)>;
  virtual ~RouterClient() = default;
  // `done` is called once, in the router, and only destroyed when the router ends first. `request.call`, when
  // not 0, names it for Cancel.
  virtual void Infer(proto::InferRequest request, Done done) = 0;
  virtual void Cancel(std::uint64_t call) = 0;
};
using RouterInbox = Inbox<RouterClient>;

struct RouterOptions {
  std::string gateway;   // this member's name
  std::uint64_t id = 0;  // of this incarnation; never used by another router
  PolicyNames policies;
  cluster::RouterLimits limits;
  std::shared_ptr<const Lease> lease = std::make_shared<Lease>();  // kept by the member
  Duration call_slack = std::chrono::seconds(2);  // a node that is this late with an answer counts as lost
  Duration hello_every = std::chrono::milliseconds(250);
  Duration hello_timeout = std::chrono::seconds(1);
  std::shared_ptr<ViewCell> view = std::make_shared<ViewCell>();  // kept up to date by the router
  std::shared_ptr<ServableModels> servable = std::make_shared<ServableModels>();  // likewise
  std::shared_ptr<RouterInbox> inbox = std::make_shared<RouterInbox>();
  // Told of each request that ends, but for its Unix time; called in the actor.
  std::function<void(const cluster::EndedRequest&, Time now)> on_answer;
};

// `directory` outlives the actor. InvalidArgument for a policy that does not exist.
absl::StatusOr<RouterActor> SpawnRouter(caf::actor_system& system, RouterOptions options,
                                        PeerDirectory& directory);

}  // namespace troupe::actors

// Spawns the front (interface and contract: actors/interfaces/front.hpp) and gives threads a way in.
#pragma once

#include <caf/actor_system.hpp>
#include <functional>
#include <memory>
#include <string>

#include "actors/gateway/router.hpp"
#include "actors/gateway/view_cell.hpp"
#include "actors/interfaces/front.hpp"
#include "actors/seams/peer_directory.hpp"
#include "transport/tensor_channel.hpp"

namespace troupe::actors {

struct FrontOptions {
  std::string gateway;            // this member's name
  std::string manager;            // address: workflow runs commit there
  std::uint64_t incarnation = 0;  // makes run keys unique
  std::shared_ptr<ViewCell> view;
  // Told of each call of a workflow that ends, and how (absl::StatusCode); called in the actor. May be empty.
  std::function<void(const proto::FunctionKey& workflow, int code, Duration took)> on_run;
  // Answers the manager's questions about requests; called in the actor. May be empty.
  std::function<proto::GatewayDescription(const proto::DescribeGateway&, Time now)> describe;
  std::shared_ptr<RouterInbox> router_inbox = std::make_shared<RouterInbox>();  // of the router
};

// The way in for threads outside actors: functions go straight into the router, workflows through the front.
// Destroyed before the actor system; thread-safe.
class FrontClient {
 public:
  using Done = RouterClient::Done;
  virtual ~FrontClient() = default;
  [[nodiscard]] virtual FrontActor actor() const = 0;
  // `done` is called once, in an actor, or on the caller's thread when the actor has ended. `request.call`
  // names it for Cancel.
  virtual void Infer(proto::InferRequest request, Done done) = 0;
  virtual void Cancel(std::uint64_t call) = 0;
  virtual void Release(std::uint64_t release) = 0;
};

// `directory` and `channel` outlive it.
std::unique_ptr<FrontClient> MakeFrontClient(caf::actor_system& system, FrontOptions options,
                                             RouterActor router, PeerDirectory& directory,
                                             transport::TensorChannel& channel);

}  // namespace troupe::actors

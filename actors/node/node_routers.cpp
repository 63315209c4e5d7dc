// The node controller: the routers that send it requests, and what they are told.
#include "actors/node/node_controller_actor.hpp"

namespace troupe::actors {

// Whoever says hello may have lost all that it knew of this node.
proto::CreditGrant NodeController::Hello(const proto::RouterHello& hello, const CreditSinkActor& router) {
  if (routers_.Add(hello.router(), router)) monitor(router);
  routers_.ledger().Report(hello.router(), hello.queued());
  for (const auto& grant : routers_.ledger().Regrant(hello.router()))
    if (grant.router != hello.router()) send(routers_.Find(grant.router), Grant(grant.router));
  routers_.told(hello.router()) = {};
  return Grant(hello.router());
}

proto::CreditGrant NodeController::Grant(std::uint64_t router) {
  proto::CreditGrant grant;
  grant.set_node(options_.name);
  grant.set_node_epoch(epoch_);
  grant.set_limit(routers_.ledger().limit(router));
  grant.set_draining(scheduler_.draining());
  auto& told = routers_.told(router);
  if (auto served = served_.Since(std::exchange(told.served, served_.revision())))
    *grant.mutable_adopted() = *std::move(served);
  if (std::exchange(told.residency, residency_) != residency_) {
    // By digest: whose copy is whose is this node's own matter. The names are in order, a model's copies
    // together.
    auto& resident = *grant.mutable_resident()->mutable_digests();
    for (const auto& copy : scheduler_.ResidentModels()) {
      auto digest = node::DigestOf(copy);
      if (resident.empty() || *resident.rbegin() != digest) *resident.Add() = std::move(digest);
    }
  }
  return grant;
}

void NodeController::GrantAll() {
  dirty_ = false;
  static_cast<void>(routers_.ledger().Regrant());
  for (const auto& [id, router] : routers_.all()) send(router, Grant(id));
}

void NodeController::ArmGrants() {
  if (grants_armed_) return;
  grants_armed_ = true;
  After(this, options_.grant_every, MakeTick(kGrant));
}

void NodeController::Down(const caf::down_msg& down) {
  const auto router = routers_.Remove(down.source);
  if (router == 0) return;
  for (const auto& id : inputs_.PendingOf(router))
    Finish({.id = id,
            .kind = node::FinishKind::kCancelled,
            .status = absl::CancelledError("its router is gone")});
  Handle(scheduler_.ForgetRouter(router));
  for (const auto& unread : unread_.TakeOfRouter(router)) {
    ReleaseSlices(unread.gpu, unread.slices);
    scheduler_.Unread(unread.gpu, -1);
  }
}

}  // namespace troupe::actors

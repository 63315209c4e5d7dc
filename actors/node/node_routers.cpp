// The node controller: the routers that send it requests, and what they are told.
#include "actors/node/node_controller_actor.hpp"

namespace troupe::actors {

proto::CreditGrant NodeController::Hello(const proto::RouterHello& hello, const CreditSinkActor& router) {
  if (routers_.Add(hello.router(), router)) monitor(router);
  routers_.ledger().Report(hello.router(), hello.queued());
  proto::CreditGrant mine = Grant();
  for (const auto& grant : routers_.ledger().Regrant(hello.router())) {
    if (grant.router == hello.router()) {
      mine.set_limit(grant.limit);
    } else {
      auto other = Grant();
      other.set_limit(grant.limit);
      send(routers_.Find(grant.router), std::move(other));
    }
  }
  return mine;
}

proto::CreditGrant NodeController::Grant() const {
  proto::CreditGrant grant;
  grant.set_node(options_.name);
  grant.set_node_epoch(epoch_);
  grant.set_draining(scheduler_.draining());
  // By digest: whose copy is whose is this node's own matter. The names are in order, a model's copies
  // together.
  const auto add = [](const std::string& copy, auto& digests) {
    const auto digest = node::DigestOf(copy);
    if (digests.empty() || *digests.rbegin() != digest) *digests.Add() = digest;
  };
  for (const auto& copy : scheduler_.AdoptedModels()) add(copy, *grant.mutable_adopted());
  for (const auto& copy : scheduler_.gpus().ResidentModels()) add(copy, *grant.mutable_resident());
  return grant;
}

void NodeController::GrantAll() {
  dirty_ = false;
  static_cast<void>(routers_.ledger().Regrant());
  for (const auto& [id, router] : routers_.all()) {
    auto grant = Grant();
    grant.set_limit(routers_.ledger().limit(id));
    send(router, std::move(grant));
  }
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

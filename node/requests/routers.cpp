#include "node/requests/routers.hpp"

#include <utility>

#include "node/parts.hpp"

namespace troupe::node {

namespace {

// Times the credits of a node that gives each request a run of its own.
constexpr std::uint64_t kJoinedCredits = 4;

}  // namespace

bool Routers::KnowsAllTold(const proto::RouterHello& hello) const {
  const auto told = routers_.find(hello.router());
  return told != routers_.end() && hello.known_grant() > 0 && hello.known_grant() == told->second.grant &&
         hello.known_epoch() == parts_.membership.epoch();
}

// A router that says hello may have lost all that it knew of this node.
void Routers::On(const RouterSaidHello& event) {
  const auto router = event.hello.router();
  const bool anew = !KnowsAllTold(event.hello);
  routers_.try_emplace(router);
  ledger_.Report(router, event.hello.queued());
  for (const auto& grant : ledger_.Regrant(router))
    if (grant.router != router) parts_.out.Add(TellRouter{grant.router, GrantFor(grant.router)});
  if (anew) {
    routers_[router] = {};
    event.hello.names_gpus() ? gpu_reports_.Add(router) : gpu_reports_.Forget(router);
  }
  parts_.out.Add(Answer<proto::CreditGrant>{event.ask, GrantFor(router)});
}

void Routers::On(const RouterLost& event) {
  ledger_.Forget(event.router);
  gpu_reports_.Forget(event.router);
  work_reports_.Forget(event.router);
  routers_.erase(event.router);
}

void Routers::On(const Joined&) {
  for (auto& [router, told] : routers_) told = {};
  gpu_reports_.TellAnew();
}

proto::CreditGrant Routers::GrantFor(std::uint64_t router) {
  proto::CreditGrant grant;
  grant.set_node(parts_.settings.name);
  grant.set_node_epoch(parts_.membership.epoch());
  grant.set_limit(ledger_.limit(router));
  grant.set_draining(parts_.scheduler.draining());
  auto& told = routers_[router];
  grant.set_number(++told.grant);
  if (auto served = served_.Since(std::exchange(told.served, served_.revision())))
    *grant.mutable_adopted() = *std::move(served);
  if (std::exchange(told.residency, residency_) != residency_) {
    // By digest: which key a copy belongs to is this node's own matter. The names are in order, a model's
    // copies together.
    auto& resident = *grant.mutable_resident()->mutable_digests();
    DigestNumber last;
    for (const auto& copy : parts_.scheduler.ResidentModels())
      if (copy->digest != std::exchange(last, copy->digest)) *resident.Add() = copy->digest.text();
  }
  if (gpu_reports_.Knows(router)) {
    gpu_reports_.Fill(router, grant);
  } else {
    work_reports_.Fill(router, grant);
  }
  return grant;
}

void Routers::GrantAll() {
  dirty_ = false;
  static_cast<void>(ledger_.Regrant());
  for (const auto& [router, told] : routers_) parts_.out.Add(TellRouter{router, GrantFor(router)});
}

void Routers::GrantSoon() {
  dirty_ = true;
  if (std::exchange(granting_, true)) return;
  parts_.out.WakeAfter(Timer::kGrant, parts_.settings.grant_every);
}

void Routers::OnGrantTimer() {
  granting_ = false;
  if (dirty_) GrantAll();
}

void Routers::WorkChanged() {
  if (routers_.size() < 2 && !work_reports_.ToldOfAny()) return;
  if (std::exchange(reporting_, true)) return;
  parts_.out.WakeAfter(Timer::kWork, parts_.settings.work_every);
}

void Routers::OnWorkTimer() {
  reporting_ = false;
  for (const auto router : work_reports_.Due()) parts_.out.Add(TellRouter{router, GrantFor(router)});
}

void Routers::UpdateCapacity() {
  std::uint32_t fit = 0;
  // A GPU's places are the same, however many runtimes share them. A GPU whose worker has not come up yet has none: requests would
  // wait for it while another node has a place for them.
  for (std::uint32_t device = 0; device < parts_.settings.gpus.size(); ++device)
    fit += parts_.runtimes.Works(device) ? 1 : 0;
  work_reports_.SetFitGpus(fit);
  // Where one run answers several requests, as many more have to be here to be joined.
  const std::uint64_t joined = parts_.scheduler.batching().Joins() ? kJoinedCredits : 1;
  ledger_.SetCapacity(parts_.scheduler.draining() ? 0 : fit * joined * parts_.settings.credits_per_gpu);
  GrantAll();
}

}  // namespace troupe::node

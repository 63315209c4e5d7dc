#include "node/state/replication.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/wire_status.hpp"
#include "cluster/failure.hpp"
#include "node/parts.hpp"

namespace troupe::node {

bool Replication::Replica::UnderWay(const std::string& image) const {
  return std::ranges::any_of(under_way, [&](const auto& copy) { return copy.second.image == image; });
}

bool Replication::Replica::Filled() const {
  return begun && !failed && fill.empty() &&
         std::ranges::none_of(under_way, [](const auto& copy) { return copy.second.fills; });
}

bool Replication::Replica::Lacks(const std::string& image) const {
  if (failed) return told.in_step();  // until the manager has stored that it is not
  return begun && (due.contains(image) || UnderWay(image));
}

DeclaredState* Replication::OwnerOf(const std::string& image) const {
  return parts_.states.declared().ByKey(parts_.names.FindState(image.substr(0, image.find('#'))));
}

absl::Status Replication::MayBeElsewhere() {
  return absl::FailedPreconditionError("another node may be the home of this state");
}

bool Replication::IsReplicated(const std::string& digest) const {
  const auto& states = parts_.states.declared().InOrder();
  return std::ranges::any_of(states, [&](const auto* state) {
    return state->replicas > 0 && state->model->digest.text() == digest;
  });
}

bool Replication::Copying(const std::string& digest) const {
  const auto home = homes_.find(digest);
  return home != homes_.end() && std::ranges::any_of(home->second.replicas, [](const auto& replica) {
           return !replica.second.failed && replica.second.Busy();
         });
}

std::vector<std::string> Replication::Complete(const std::string& digest) const {
  std::vector<std::string> nodes;
  if (const auto home = homes_.find(digest); home != homes_.end())
    for (const auto& [node, replica] : home->second.replicas)
      if (replica.begun && !replica.failed && !replica.Busy()) nodes.push_back(node);
  return nodes;
}

bool Replication::Serves(const std::string& function) const {
  const auto* state = OwnerOf(function);
  return state != nullptr && homes_.contains(state->model->digest.text());
}

// --- what the manager says ---

void Replication::On(const ReplicasNamed& event) {
  const auto& digest = event.wish.model_digest();
  fenced_.erase(digest);
  // It may be the home by copies that it has not read, since a node that drains adopts nothing: then they are what others get.
  const auto term = event.wish.term();
  if (!parts_.replica_images.Follows(digest, term + 1)) parts_.replica_images.Adopting(digest, term);
  auto& home = homes_[digest];
  if (const auto before = std::exchange(home.ask, event.ask))
    parts_.out.Add(Answer<proto::ReplicasInStep>{
        *before, cluster::Failure<proto::ReplicasInStep>(absl::CancelledError("the manager asked anew"))});
  Name(digest, event.wish, true);
}

void Replication::Adopting(const std::string& digest, const std::optional<proto::StateReplicas>& replicas,
                           std::uint64_t epoch) {
  fenced_.erase(digest);
  if (!replicas) return;
  adopted_in_[digest] = epoch;
  Name(digest, *replicas, false);
}

void Replication::Name(const std::string& digest, const proto::StateReplicas& named, bool stored) {
  auto& home = *homes_.try_emplace(digest).first;
  home.second.named = named;
  std::set<std::string> nodes;
  for (const auto& replica : named.replicas()) {
    nodes.insert(replica.node());
    Begin(home, replica, stored);
  }
  for (auto at = home.second.replicas.begin(); at != home.second.replicas.end();) {
    const auto one = at++;
    if (nodes.contains(one->first)) continue;
    // It keeps nothing that grows old.
    Send(home, one->second, {});
    home.second.replicas.erase(one);
  }
  Look(digest);
}

// A node in step was in step before this daemon began, and what it may lack was not acknowledged. One that is out of step, or
// was started again before it came into step, may lack anything.
void Replication::Begin(Homes::value_type& home, const proto::StateReplica& named, bool stored) {
  const auto [known, is_new] = home.second.replicas.try_emplace(named.node());
  auto& replica = known->second;
  const bool was_in_step = !is_new && replica.told.in_step();
  const bool in_step = named.in_step() || (was_in_step && !stored);
  const bool again =
      !in_step && (replica.failed || was_in_step || (!is_new && replica.told.epoch() != named.epoch()));
  if (again) replica = {};
  replica.told = named;
  replica.told.set_in_step(in_step);
  if (!is_new && !again) return;
  if (in_step) {
    replica.begun = true;
    Fill(home.first, replica);
    return Pump(home, replica);
  }
  Send(home, replica, {});
}

// The manager may name nodes before this one has heard of a function that keeps a state with the model.
bool Replication::Known(const std::string& digest) {
  const auto keepers = parts_.handovers.KeepersOf(digest);
  return !keepers.empty() &&
         std::ranges::all_of(keepers, [&](const auto* state) { return parts_.handovers.IsKnown(*state); });
}

void Replication::Fill(const std::string& digest, Replica& replica) {
  for (const auto* state : std::as_const(parts_.states).declared().InOrder()) {
    if (state->model->digest.text() != digest) continue;
    if (parts_.states.ImageOf(state->key) != nullptr) replica.fill.insert(state->key.text());
    for (auto& image : parts_.sequences.Begun(state->key)) replica.fill.insert(std::move(image));
  }
}

void Replication::Lapsed(std::uint64_t epoch) {
  std::set<std::string> digests;
  for (const auto* state : std::as_const(parts_.states).declared().InOrder())
    if (const auto& digest = state->model->digest.text(); IsReplicated(digest)) digests.insert(digest);
  std::erase_if(digests, [&](const std::string& digest) {
    const auto adopted = adopted_in_.find(digest);
    return adopted != adopted_in_.end() && adopted->second == epoch;
  });
  for (const auto& digest : digests) {
    Leave(digest, absl::UnavailableError("this node was cut off for longer than its lease"));
    const auto bare = bare_in_.find(digest);
    if (bare == bare_in_.end() || bare->second != epoch) parts_.models.On(ModelDisowned{digest});
  }
}

void Replication::Leave(const std::string& digest, const absl::Status& why) {
  if (IsReplicated(digest)) fenced_.insert(digest);
  adopted_in_.erase(digest);
  auto home = homes_.extract(digest);
  if (home.empty()) return;
  if (home.mapped().ask)
    parts_.out.Add(
        Answer<proto::ReplicasInStep>{*home.mapped().ask, cluster::Failure<proto::ReplicasInStep>(why)});
  for (const auto& [batch, image] : home.mapped().waiting) parts_.write_backs.Copied(batch, why);
}

// --- images ---

void Replication::Changed(const std::string& image, bool ended) {
  const auto* owner = OwnerOf(image);
  const auto home = owner == nullptr ? homes_.end() : homes_.find(owner->model->digest.text());
  if (home == homes_.end()) return;
  for (auto& [node, replica] : home->second.replicas) {
    if (!replica.begun || replica.failed) continue;
    replica.fill.erase(image);
    replica.due[image] = ended;
    Pump(*home, replica);
  }
}

absl::StatusOr<bool> Replication::Await(const std::string& image, std::uint64_t batch) {
  const auto* owner = OwnerOf(image);
  if (owner == nullptr) return false;
  const auto& digest = owner->model->digest.text();
  if (fenced_.contains(digest)) return MayBeElsewhere();
  const auto home = homes_.find(digest);
  if (home == homes_.end()) return false;
  const bool lacks = std::ranges::any_of(home->second.replicas,
                                         [&](const auto& replica) { return replica.second.Lacks(image); });
  if (lacks) home->second.waiting[batch] = image;
  return lacks;
}

// One image is on its way to a node once at a time, so the newest comes last.
void Replication::Pump(Homes::value_type& home, Replica& replica) {
  for (auto at = replica.due.begin(); at != replica.due.end() && replica.under_way.size() < kAtOnce;) {
    const auto one = at++;
    if (replica.UnderWay(one->first)) continue;
    const Wanted wanted{one->first, one->second};
    replica.due.erase(one);
    Send(home, replica, wanted);
  }
  while (!replica.fill.empty() && replica.under_way.size() < kAtOnce)
    Send(home, replica, {std::move(replica.fill.extract(replica.fill.begin()).value()), false, true});
}

void Replication::Send(const Homes::value_type& home, Replica& replica, const Wanted& wanted) {
  SendCopy send{++last_, replica.told.address(), {}};
  send.copy.set_model_digest(home.first);
  send.copy.set_term(home.second.named.term());
  send.copy.set_epoch(replica.told.epoch());
  send.copy.set_from_address(home.second.named.home_address());
  send.copy.set_image(wanted.image);
  send.copy.set_ended(wanted.ended);
  replica.under_way[last_] = wanted;
  copies_[last_] = {home.first, replica.told.node()};
  parts_.out.Add(std::move(send));
}

void Replication::On(const CopyEnded& event) {
  const auto copy = copies_.extract(event.number);
  if (copy.empty()) return;
  const auto& [digest, node] = copy.mapped();
  const auto home = homes_.find(digest);
  if (home == homes_.end()) return;
  const auto found = home->second.replicas.find(node);
  if (found == home->second.replicas.end()) return;
  auto& replica = found->second;
  const auto sent = replica.under_way.extract(event.number);
  if (sent.empty()) return;  // it was named anew meanwhile
  const auto& image = sent.mapped().image;
  // A file that changed while it was read goes once more. One that is not there was never written.
  const bool changed = absl::IsDataLoss(event.status) && replica.due.contains(image);
  const bool none = absl::IsNotFound(event.status);
  if (!event.status.ok() && !changed && !none) {
    Fail(digest, replica, event.status);
  } else if (image.empty() && !Known(digest)) {
    Fail(digest, replica, absl::UnavailableError("what this node has of the states is not known yet"));
  } else if (image.empty()) {
    replica.begun = true;
    Fill(digest, replica);
    for (const auto& [batch, waits] : home->second.waiting) replica.due[waits] = false;
  }
  if (!replica.failed) Pump(*home, replica);
  Look(digest);
}

void Replication::Fail(const std::string& digest, Replica& replica, const absl::Status& why) {
  replica.failed = true;
  replica.due.clear();
  replica.fill.clear();
  if (replica.told.in_step())
    parts_.out.Note("state-out-of-step", absl::StrCat("model ", digest, ": node '", replica.told.node(),
                                                      "' has no copy of the newest image of a state (",
                                                      why.message(), "); it is filled anew"));
}

void Replication::Look(const std::string& digest) {
  const auto home = homes_.find(digest);
  if (home == homes_.end()) return;
  std::vector<std::uint64_t> done;
  for (const auto& [batch, image] : home->second.waiting)
    if (std::ranges::none_of(home->second.replicas,
                             [&image = image](const auto& replica) { return replica.second.Lacks(image); }))
      done.push_back(batch);
  for (const auto batch : done) home->second.waiting.erase(batch);
  AnswerManager(home->second);
  // What follows may name other nodes.
  for (const auto batch : done) parts_.write_backs.Copied(batch, absl::OkStatus());
}

// From this answer on a node that is to come into step is waited for, whatever becomes of it.
void Replication::AnswerManager(Home& home) {
  if (!home.ask) return;
  proto::ReplicasInStep reply;
  bool other = false;
  for (auto& [node, replica] : home.replicas) {
    const bool in_step = replica.told.in_step() ? !replica.failed : replica.Filled();
    other |= in_step != replica.told.in_step();
    if (in_step) reply.add_nodes(node);
  }
  if (!other) return;
  for (auto& [node, replica] : home.replicas)
    if (replica.Filled()) replica.told.set_in_step(true);
  parts_.out.Add(Answer<proto::ReplicasInStep>{*std::exchange(home.ask, std::nullopt), std::move(reply)});
}

}  // namespace troupe::node

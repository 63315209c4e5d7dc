#include "cluster/copies/state_replicas.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/copies/state_keepers.hpp"
#include "cluster/exclusive_lease.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

void StateReplicas::Start() {
  last_term_ = parts_.catalogue.homes().last_term;
  for (const auto& [digest, home] : parts_.catalogue.homes().by_model) {
    auto& kept = kept_[digest];
    kept.term = std::max<std::uint64_t>(1, home.term());
    kept.in_step = {home.in_step().begin(), home.in_step().end()};
    kept.chosen = kept.in_step;
    kept.home_is_empty = home.home_is_empty();
    if (kept.home_is_empty) parts_.copies.BeginMove(digest);
  }
}

std::uint64_t StateReplicas::FirstTerm(const std::string& digest) {
  kept_[digest] = Kept{.term = ++last_term_};
  return last_term_;
}

void StateReplicas::Pulse() {
  const auto& homes = parts_.copies.table().homes().all();
  for (auto at = kept_.begin(); at != kept_.end();) {
    const auto one = at++;
    if (homes.contains(one->first)) continue;
    if (one->second.home_is_empty) parts_.copies.EndMove(one->first);
    kept_.erase(one);
  }
  for (const auto& [digest, home] : StateHomes::Homes(homes)) {
    const auto known = kept_.find(digest);
    if (known == kept_.end() && !IsReplicated(parts_.catalogue.functions().table(), digest)) continue;
    auto& kept = kept_[digest];
    const auto* member = parts_.members.table().Find(home);
    const bool gone = member == nullptr || member->record.state() == proto::MEMBER_DEAD ||
                      member->record.state() == proto::MEMBER_LEFT;
    gone || kept.home_is_empty ? Replace(digest, home, kept) : Follow(digest, home, kept);
  }
}

bool StateReplicas::IsThere(const std::string& node) const {
  const auto* member = parts_.members.table().Find(node);
  return member != nullptr && parts_.members.HasNode(node) && member->record.state() != proto::MEMBER_DEAD &&
         member->record.state() != proto::MEMBER_LEFT;
}

bool StateReplicas::Lives(const std::string& node) const {
  return IsThere(node) && parts_.members.table().Find(node)->record.state() != proto::MEMBER_DRAINING;
}

std::set<std::string> StateReplicas::Kept::Complete() const {
  auto nodes = in_step;
  if (to_store) nodes.insert(to_store->begin(), to_store->end());
  return nodes;
}

// --- while the home is there ---

void StateReplicas::Follow(const std::string& digest, const std::string& home, Kept& kept) {
  kept.missed.reset();
  Choose(digest, home, kept);
  if (!parts_.members.HasNode(home) || kept.storing || parts_.state_moves.Stores(digest)) return;
  if (kept.to_store) {
    if (parts_.out.now() >= kept.again) Store(digest, kept, *std::exchange(kept.to_store, std::nullopt));
    return;
  }
  auto in_step = kept.in_step;
  std::erase_if(in_step, [&](const std::string& node) { return !kept.chosen.contains(node); });
  if (in_step != kept.in_step) return Store(digest, kept, std::move(in_step));
  Ask(digest, home, kept);
}

void StateReplicas::Choose(const std::string& digest, const std::string& home, Kept& kept) {
  const auto wanted = ReplicasOf(parts_.catalogue.functions().table(), digest);
  std::erase_if(kept.emptied, [&](const std::string& node) { return !kept.in_step.contains(node); });
  std::erase_if(kept.chosen,
                [&](const std::string& node) { return node == home || kept.emptied.contains(node); });
  DropMissing(home, kept);
  const auto lives = [&](const std::string& node) { return Lives(node); };
  auto living = static_cast<std::uint32_t>(std::ranges::count_if(kept.chosen, lives));
  for (; living > wanted; --living) {
    const auto other = std::ranges::find_if(
        kept.chosen, [&](const std::string& node) { return Lives(node) && !kept.in_step.contains(node); });
    kept.chosen.erase(other == kept.chosen.end() ? std::ranges::find_if(kept.chosen, lives) : other);
  }
  for (; living < wanted; ++living) {
    const auto node = OtherNode(digest, home, kept);
    if (node.empty()) return;
    kept.chosen.insert(node);
  }
  // A node that drains has its copies for as long as it is there, and until enough others are in step.
  if (std::ranges::count_if(kept.in_step, lives) >= wanted)
    std::erase_if(kept.chosen, [&](const std::string& node) { return IsThere(node) && !Lives(node); });
}

// What is lost with the home at once may come back, and the home may not: so a node in step is dropped when the home was heard
// after it was lost. The home waits for it so long, or says itself that a copy failed.
void StateReplicas::DropMissing(const std::string& home, Kept& kept) {
  std::erase_if(kept.missing,
                [&](const auto& one) { return !kept.chosen.contains(one.first) || IsThere(one.first); });
  const auto heard = parts_.members.table().Find(home)->last_heard;
  std::erase_if(kept.chosen, [&](const std::string& node) {
    if (IsThere(node) || parts_.members.Awaits(node)) return false;
    if (!kept.in_step.contains(node)) return true;
    const auto since = kept.missing.try_emplace(node, parts_.out.now()).first->second;
    return heard > since + parts_.settings.membership.heartbeat;
  });
}

// On a host of its own, if there is one.
std::string StateReplicas::OtherNode(const std::string& digest, const std::string& home,
                                     const Kept& kept) const {
  const auto& members = parts_.members.table();
  const auto keepers = KeepersOf(parts_.catalogue.functions().table(), digest);
  if (keepers.empty()) return {};
  auto without = kept.chosen;
  without.insert(home);
  without.insert(kept.emptied.begin(), kept.emptied.end());
  std::set<std::string> hosts;
  for (const auto& node : without)
    if (const auto* member = members.Find(node); member != nullptr && !member->record.host().empty())
      hosts.insert(member->record.host());
  for (const auto& [name, member] : members.members())
    if (!parts_.members.HasNode(name)) without.insert(name);
  auto beside = without;
  for (const auto& [name, member] : members.members())
    if (hosts.contains(member.record.host())) beside.insert(name);
  auto node = PlacementTable::OtherHome(*keepers.front(), members, beside);
  return node.empty() ? PlacementTable::OtherHome(*keepers.front(), members, without) : node;
}

proto::StateReplicas StateReplicas::Named(const std::string& digest, const std::string& home,
                                          const Kept& kept) const {
  const auto& members = parts_.members.table();
  proto::StateReplicas named;
  named.set_model_digest(digest);
  named.set_term(kept.term);
  if (const auto* member = members.Find(home)) named.set_home_address(member->record.address());
  auto nodes = kept.chosen;
  nodes.insert(kept.in_step.begin(), kept.in_step.end());
  for (const auto& node : nodes) {
    auto& replica = *named.add_replicas();
    replica.set_node(node);
    replica.set_in_step(kept.in_step.contains(node) || (kept.to_store && kept.to_store->contains(node)));
    if (const auto* member = members.Find(node)) {
      replica.set_address(member->record.address());
      replica.set_epoch(member->record.epoch());
    }
  }
  return named;
}

void StateReplicas::Ask(const std::string& digest, const std::string& home, Kept& kept) {
  auto named = Named(digest, home, kept);
  auto text = named.SerializeAsString();
  const bool other = text != kept.named;
  if (!other && (kept.question != 0 || parts_.out.now() < kept.again)) return;
  // A home without other nodes has nothing to tell.
  if (named.replicas().empty() && (!other || kept.named.empty())) return;
  kept.named = std::move(text);
  kept.question = ++last_;
  parts_.out.Add(NameReplicas{digest, home, kept.question, std::move(named)});
}

void StateReplicas::On(const ReplicasAnswered& event) {
  const auto found = kept_.find(event.digest);
  if (found == kept_.end() || found->second.question != event.question) return;
  auto& kept = found->second;
  kept.question = 0;
  if (!event.reply.ok()) {
    // In time it had nothing to say.
    if (!absl::IsDeadlineExceeded(event.reply.status()))
      kept.again = parts_.out.now() + parts_.settings.placement_retry;
    return;
  }
  std::set<std::string> in_step;
  for (const auto& node : event.reply->nodes())
    if (kept.chosen.contains(node)) in_step.insert(node);
  // A node that takes the states over drops its copies.
  if (parts_.state_moves.Moves(event.digest))
    std::erase_if(in_step, [&](const std::string& node) { return !kept.in_step.contains(node); });
  if (in_step == kept.in_step || kept.storing || kept.to_store || parts_.state_moves.Stores(event.digest))
    return;
  Store(event.digest, kept, std::move(in_step));
}

void StateReplicas::Store(const std::string& digest, Kept& kept, std::set<std::string> in_step) {
  const auto home = parts_.copies.table().homes().Of(digest);
  kept.storing = true;
  parts_.commits.Add(HomeChanges(digest, home, kept.term, in_step), InStepStored{digest, kept.term});
  kept.to_store = std::move(in_step);
}

void StateReplicas::On(const InStepStored& stored, const absl::Status& status) {
  const auto found = kept_.find(stored.digest);
  if (found == kept_.end() || found->second.term != stored.term || !found->second.storing) return;
  auto& kept = found->second;
  kept.storing = false;
  if (!status.ok()) {
    kept.again = parts_.out.now() + parts_.settings.placement_retry;
    return;
  }
  const auto home = parts_.copies.table().homes().Of(stored.digest);
  auto complete = kept.Complete();
  const auto before = std::exchange(kept.in_step, *std::exchange(kept.to_store, std::nullopt));
  // A home that has gone meanwhile was not told that it may go on without a node.
  if (!parts_.members.HasNode(home) && complete != kept.in_step)
    Store(stored.digest, kept, std::move(complete));
  for (const auto& node : kept.in_step)
    if (!before.contains(node) && !home.empty())
      parts_.out.Tell("manager", "state-in-step",
                      absl::StrCat("model ", stored.digest, ": node '", node,
                                   "' has copies of the states of its functions, and replaces '", home,
                                   "' when that is gone"));
  if (Lives(home)) Ask(stored.digest, home, kept);
}

// --- when the home is gone ---

void StateReplicas::Replace(const std::string& digest, const std::string& home, Kept& kept) {
  kept.question = 0;
  kept.named.clear();
  const auto now = parts_.out.now();
  const auto* member = parts_.members.table().Find(home);
  if (!kept.missed) kept.missed = member == nullptr ? now : member->last_heard;
  // The life that had the states ended before the home came back.
  if (!kept.home_is_empty && now < *kept.missed + ExclusiveLease(parts_.settings.member_lease)) return;
  const bool lost = kept.home_is_empty && Whole(digest).empty();
  const auto successor = lost ? home : Successor(digest, true);
  if (successor.empty()) return;
  // Until the new home is heard it may be gone, too, with its disk: then the old one, which has come back, is the home again.
  const bool keeps =
      !kept.home_is_empty && member != nullptr && IsReplicated(parts_.catalogue.functions().table(), digest);
  parts_.state_moves.Restore(digest, home, successor, keeps);
}

bool StateReplicas::HomeIsEmpty(const std::string& digest) const {
  const auto kept = kept_.find(digest);
  return kept != kept_.end() && kept->second.home_is_empty;
}

std::set<std::string> StateReplicas::Whole(const std::string& digest) const {
  const auto kept = kept_.find(digest);
  if (kept == kept_.end()) return {};
  auto nodes = kept->second.Complete();
  for (const auto& emptied : kept->second.emptied) nodes.erase(emptied);
  return nodes;
}

std::string StateReplicas::Successor(const std::string& digest, bool leaving) const {
  std::string drains;
  for (const auto& node : Whole(digest)) {
    if (!parts_.members.HasNode(node)) continue;
    const auto state = parts_.members.table().Find(node)->record.state();
    if (state == proto::MEMBER_ALIVE) return node;
    if (state == proto::MEMBER_DRAINING) drains = node;
  }
  return leaving ? drains : std::string();
}

void StateReplicas::NodeJoined(const std::string& node) {
  for (const auto& [digest, home] : parts_.copies.table().homes().all())
    if (home != node && IsReplicated(parts_.catalogue.functions().table(), digest))
      parts_.out.Add(TellDisowned{node, digest});
}

Changes StateReplicas::DiskIsNew(const std::string& node) {
  Changes changes = parts_.state_moves.DiskIsNew(node);
  for (const auto& [digest, home] : parts_.copies.table().homes().all())
    if (home == node && !AnyInStep(digest)) parts_.state_moves.TellLost(digest, home);
  for (auto& [digest, kept] : kept_) {
    if (parts_.state_moves.Stores(digest)) continue;  // they say what the store is to have
    const auto home = parts_.copies.table().homes().Of(digest);
    const auto complete = kept.Complete();
    const bool had_copies = complete.contains(node);
    const bool lost_states = home == node && !complete.empty();
    if (had_copies) kept.emptied.insert(node);
    if (lost_states) {
      if (!std::exchange(kept.home_is_empty, true)) parts_.copies.BeginMove(digest);
      // What is on its way to the store ends before these changes, and names other nodes.
      kept.in_step = complete;
      kept.to_store.reset();
      kept.storing = false;
    }
    if (!had_copies && !lost_states) continue;
    auto left = kept.to_store ? *kept.to_store : kept.in_step;
    for (const auto& emptied : kept.emptied) left.erase(emptied);
    changes.Add(HomeChanges(digest, home, kept.term, left, kept.home_is_empty));
  }
  return changes;
}

void StateReplicas::Moved(const std::string& digest, const std::string& home, const std::string& keeps) {
  auto& kept = kept_[digest];
  Kept next{.term = kept.term + 1, .chosen = std::move(kept.chosen)};
  next.chosen.erase(home);
  if (!keeps.empty()) {
    next.in_step.insert(keeps);
    next.chosen.insert(keeps);
    // It was gone before, so the new home need only be heard for it to be dropped.
    if (!IsThere(keeps)) next.missing[keeps] = parts_.out.now() - parts_.settings.membership.heartbeat;
  }
  kept = std::move(next);
  last_term_ = std::max(last_term_, kept.term);
}

void StateReplicas::TurnedBack(const std::string& digest, const std::set<std::string>& in_step,
                               bool home_is_empty) {
  auto& kept = kept_[digest];
  Kept next{.term = kept.term + 2,
            .in_step = in_step,
            .chosen = std::move(kept.chosen),
            .home_is_empty = home_is_empty};
  next.chosen.insert(in_step.begin(), in_step.end());
  kept = std::move(next);
  last_term_ = std::max(last_term_, kept.term);
  if (home_is_empty) parts_.copies.BeginMove(digest);
}

// --- for others ---

std::uint64_t StateReplicas::TermOf(const std::string& digest) const {
  const auto kept = kept_.find(digest);
  return kept == kept_.end() ? 1 : kept->second.term;
}

bool StateReplicas::AnyInStep(const std::string& digest) const {
  const auto kept = kept_.find(digest);
  return kept != kept_.end() && (!kept->second.in_step.empty() || kept->second.to_store);
}

bool StateReplicas::InStep(const std::string& digest, const std::string& node) const {
  const auto kept = kept_.find(digest);
  return kept != kept_.end() && kept->second.in_step.contains(node);
}

std::optional<proto::StateReplicas> StateReplicas::NamedFor(const std::string& digest,
                                                            const std::string& node) const {
  const auto kept = kept_.find(digest);
  if (parts_.copies.table().homes().Of(digest) != node) return std::nullopt;
  if (!IsReplicated(parts_.catalogue.functions().table(), digest) && !AnyInStep(digest)) return std::nullopt;
  return Named(digest, node, kept == kept_.end() ? Kept() : kept->second);
}

std::size_t StateReplicas::Short() const {
  const auto& functions = parts_.catalogue.functions().table();
  return static_cast<std::size_t>(std::ranges::count_if(kept_, [&](const auto& entry) {
    const auto copies =
        std::ranges::count_if(entry.second.in_step, [&](const std::string& node) { return IsThere(node); });
    return static_cast<std::uint64_t>(copies) < ReplicasOf(functions, entry.first);
  }));
}

void StateReplicas::Describe(proto::FunctionStatus& function) const {
  const auto& record = function.record();
  if (record.state().empty()) return;
  function.set_state_home(parts_.copies.table().homes().Of(record.model_digest()));
  const auto kept = kept_.find(record.model_digest());
  if (kept == kept_.end()) return;
  for (const auto& node : kept->second.chosen) {
    auto& shown = *function.add_state_replicas();
    shown.set_node(node);
    shown.set_in_step(kept->second.in_step.contains(node));
  }
}

}  // namespace troupe::cluster

#include "cluster/copies/state_moves.hpp"

#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/copies/state_keepers.hpp"
#include "cluster/function_state.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

void StateMoves::Pulse() {
  for (auto move = moves_.begin(); move != moves_.end();) {
    const auto one = move++;
    if (one->second.stage == Stage::kNotStored && parts_.out.now() >= one->second.again) Store(one);
  }
  for (const auto& [digest, node] : parts_.copies.table().homes().all()) {
    if (moves_.size() >= kMost) return;
    const auto* member = parts_.members.table().Find(node);
    const bool drains = member != nullptr && member->record.state() == proto::MEMBER_DRAINING;
    if (!drains || !parts_.members.HasNode(node) || moves_.contains(digest)) continue;
    const auto failed = failed_.find(digest);
    if (failed == failed_.end() || parts_.out.now() >= failed->second.until) Begin(digest, node);
  }
}

void StateMoves::Begin(const std::string& digest, const std::string& node) {
  const auto& functions = parts_.catalogue.functions().table();
  const auto keepers = KeepersOf(functions, digest);
  // Its home is about to be given up, or a node is asked to adopt it: such a request would undo what the move asks for.
  if (keepers.empty() || parts_.copies.table().copies().BeingAdopted(digest)) return;
  // The node that takes the states over drops its copies first. So a node in step must not take them over: if the home were
  // gone meanwhile, that node would have to replace it.
  if (parts_.state_replicas.AnyInStep(digest)) return;
  const auto failed = failed_.find(digest);
  std::set<std::string> without{node};
  if (failed != failed_.end()) without.insert(failed->second.node);
  const auto& members = parts_.members.table();
  auto to = PlacementTable::OtherHome(*keepers.front(), members, without);
  if (to.empty()) to = PlacementTable::OtherHome(*keepers.front(), members, {node});
  if (to.empty() || !parts_.members.HasNode(to)) return;
  auto& move = moves_[digest];
  move = {.number = ++last_,
          .from = {node, members.Find(node)->record.epoch()},
          .to = {to, members.Find(to)->record.epoch()}};
  parts_.copies.BeginMove(digest);
  AskGiveUp ask{digest, node, move.number, {}};
  ask.wish.set_model_digest(digest);
  for (const auto* keeper : keepers) ask.wish.add_functions(StateKey(*keeper));
  parts_.out.Add(std::move(ask));
}

void StateMoves::Restore(const std::string& digest, const std::string& from, const std::string& to) {
  if (moves_.size() >= kMost || moves_.contains(digest)) return;
  auto& move = moves_[digest];
  move = {.number = ++last_, .from = {from, 0}, .to = {to, 0}, .restores = true};
  parts_.copies.BeginMove(digest);
  Store(moves_.find(digest));
}

bool StateMoves::Stores(const std::string& digest) const {
  const auto move = moves_.find(digest);
  return move != moves_.end() &&
         (move->second.stage == Stage::kStoring || move->second.stage == Stage::kNotStored);
}

StateMoves::Moves::iterator StateMoves::Find(const std::string& digest, std::uint64_t number, Stage stage) {
  const auto move = moves_.find(digest);
  const bool same = move != moves_.end() && move->second.number == number && move->second.stage == stage;
  return same ? move : moves_.end();
}

bool StateMoves::Lives(const Place& place) const {
  return parts_.members.HasNode(place.node) &&
         parts_.members.table().CheckEpoch(place.node, place.epoch).ok();
}

void StateMoves::On(const StatesGivenUp& event) {
  const auto found = Find(event.digest, event.move, Stage::kGivingUp);
  if (found == moves_.end()) return;
  auto& move = found->second;
  if (!event.reply.ok()) return End(found, event.reply.status());
  if (!Lives(move.to))
    return End(found, absl::UnavailableError(absl::StrCat("node '", move.to.node, "' is gone")));
  move.stage = Stage::kTakingOver;
  AskTakeOver ask{event.digest, move.to.node, move.number, {}};
  ask.wish.set_model_digest(event.digest);
  ask.wish.set_from_address(parts_.members.table().Find(move.from.node)->record.address());
  *ask.wish.mutable_images() = event.reply->images();
  parts_.out.Add(std::move(ask));
}

void StateMoves::On(const StatesTakenOver& event) {
  const auto found = Find(event.digest, event.move, Stage::kTakingOver);
  if (found == moves_.end()) return;
  if (!event.status.ok()) return End(found, event.status);
  Store(found);
}

void StateMoves::Store(Moves::iterator found) {
  auto& [digest, move] = *found;
  // Its functions were removed meanwhile.
  if (parts_.copies.table().homes().Of(digest) != move.from.node)
    return End(found, absl::CancelledError("its functions were removed"));
  move.stage = Stage::kStoring;
  parts_.commits.Add(HomeChanges(digest, move.to.node, parts_.state_replicas.TermOf(digest) + 1),
                     HomeMoved{digest, move.number});
}

void StateMoves::On(const HomeMoved& stored, const absl::Status& status) {
  const auto found = Find(stored.digest, stored.move, Stage::kStoring);
  if (found == moves_.end()) return;
  auto& move = found->second;
  if (!status.ok()) {
    move.stage = Stage::kNotStored;
    move.again = parts_.out.now() + parts_.settings.placement_retry;
    return parts_.out.Tell("manager", "state-not-moved",
                           absl::StrCat("model ", stored.digest, ": its new home could not be stored (",
                                        status.message(), "); it is stored again by itself"));
  }
  const auto from = move.from.node;
  const auto to = move.to.node;
  TellMoved(stored.digest, move);
  parts_.copies.Moved(stored.digest, to);
  parts_.state_replicas.Moved(stored.digest, to);
  stale_[from].insert(stored.digest);
  failed_.erase(stored.digest);
  Close(found);
  parts_.copies.Place();
}

void StateMoves::TellMoved(const std::string& digest, const Move& move) {
  for (const auto* keeper : KeepersOf(parts_.catalogue.functions().table(), digest)) {
    const auto who = absl::StrCat("function '", keeper->key().name(), "' version ", keeper->key().version());
    if (move.restores) {
      parts_.out.Tell("manager", "state-restored",
                      absl::StrCat(who, ": node '", move.from.node,
                                   "' is gone; its state and its sequences go on from the copies on node '",
                                   move.to.node, "'"));
    } else {
      parts_.out.Tell("manager", "state-moved",
                      absl::StrCat(who, ": its state and its sequences are on node '", move.to.node,
                                   "' now, and not on '", move.from.node, "'"));
    }
  }
}

void StateMoves::NodeJoined(const std::string& node) {
  for (auto move = moves_.begin(); move != moves_.end();) {
    const auto one = move++;
    const auto& [from, to] = std::tie(one->second.from.node, one->second.to.node);
    const bool open = one->second.stage == Stage::kGivingUp || one->second.stage == Stage::kTakingOver;
    if (open && (from == node || to == node))
      End(one, absl::UnavailableError(absl::StrCat("node '", node, "' was started again, or cut off")));
  }
}

void StateMoves::End(Moves::iterator found, const absl::Status& why) {
  const auto& [digest, move] = *found;
  if (move.stage != Stage::kGivingUp) stale_[move.to.node].insert(digest);
  const auto known = failed_.find(digest);
  const bool again = known != failed_.end();
  // The other node may have done nothing wrong; where there is a third one, that is tried.
  failed_[digest] = {parts_.out.now() + parts_.settings.placement_retry, move.to.node};
  if (!again)
    parts_.out.Tell("manager", "state-not-moved",
                    absl::StrCat("model ", digest, ": the states of its functions stay on node '",
                                 move.from.node, "', and did not come to '", move.to.node, "' (",
                                 why.message(), "); it is tried again by itself"));
  Close(found);
}

void StateMoves::Close(Moves::iterator found) {
  const auto digest = found->first;
  moves_.erase(found);
  parts_.copies.EndMove(digest);
}

// A node that is heard has taken in what it was told when it joined. What it has is of no use to anyone, and does no harm.
void StateMoves::Heard(const std::string& node) {
  const auto stale = stale_.extract(node);
  if (stale.empty() || !parts_.members.HasNode(node)) return;
  for (const auto& digest : stale.mapped())
    if (parts_.copies.table().homes().Of(digest) != node && !moves_.contains(digest))
      parts_.out.Add(TellForget{node, digest, parts_.state_replicas.TermOf(digest)});
}

}  // namespace troupe::cluster

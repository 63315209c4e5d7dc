#include "cluster/copies/state_moves.hpp"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/admin/answers.hpp"
#include "cluster/admin/staged_models.hpp"
#include "cluster/copies/state_keepers.hpp"
#include "cluster/failure.hpp"
#include "cluster/function_state.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

void StateMoves::Pulse() {
  for (auto move = moves_.begin(); move != moves_.end();) {
    const auto one = move++;
    if (one->second.stage == Stage::kGivingUp)
      LookAtAsked(one);
    else if (one->second.stage == Stage::kNotStored && parts_.out.now() >= one->second.again)
      Store(one);
  }
  for (const auto& [digest, node] : parts_.copies.table().homes().all()) {
    if (moves_.size() >= kMost) return;
    const auto* member = parts_.members.table().Find(node);
    const bool drains = member != nullptr && member->record.state() == proto::MEMBER_DRAINING;
    if (!drains || !parts_.members.HasNode(node) || moves_.contains(digest) ||
        parts_.state_replicas.HomeIsEmpty(digest))
      continue;
    const auto failed = failed_.find(digest);
    if (failed != failed_.end() && parts_.out.now() < failed->second.until) continue;
    const auto keepers = KeepersOf(parts_.catalogue.functions().table(), digest);
    // A node is asked to adopt it: that would undo what the move asks for. Or its home is about to be given up.
    if (keepers.empty() || parts_.copies.table().copies().BeingAdopted(digest)) continue;
    const auto to = NextHome(*keepers.front(), node);
    if (!to.empty() && parts_.members.HasNode(to)) Begin(keepers, node, to);
  }
}

void StateMoves::Begin(const Keepers& keepers, const std::string& node, const std::string& to,
                       std::optional<Ask> asker) {
  const auto& members = parts_.members.table();
  const auto& digest = keepers.front()->model_digest();
  auto& move = moves_[digest];
  move = {.number = ++last_,
          .from = {node, members.Find(node)->record.epoch()},
          .to = {to, members.Find(to)->record.epoch()},
          .copied = parts_.state_replicas.InStep(digest, to),
          .ask = asker};
  parts_.copies.BeginMove(digest);
  AskFor(keepers, move);
  const auto& use = parts_.catalogue.functions().table().models().at(digest);
  if (use.loaded_with_state == 0) parts_.copies.GivesUp(digest, node);
}

void StateMoves::AskFor(const Keepers& keepers, Move& move) {
  move.asked.clear();
  AskGiveUp ask{keepers.front()->model_digest(), move.from.node, move.number, {}};
  ask.wish.set_model_digest(ask.digest);
  for (const auto* keeper : keepers) {
    move.asked.insert(StateKey(*keeper));
    ask.wish.add_functions(StateKey(*keeper));
  }
  parts_.out.Add(std::move(ask));
}

// The node waits until it hears of each state that it is asked for, and of one that was removed it may never hear.
void StateMoves::LookAtAsked(Table::iterator found) {
  auto& [digest, move] = *found;
  const auto keepers = KeepersOf(parts_.catalogue.functions().table(), digest);
  if (keepers.empty()) return End(found, absl::CancelledError("its functions were removed"));
  auto gone = move.asked;
  for (const auto* keeper : keepers) gone.erase(StateKey(*keeper));
  if (gone.empty()) return;
  move.number = ++last_;
  AskFor(keepers, move);
}

// The node that takes states over drops its copies first, and a node in step must not: if the home were gone meanwhile, it would
// have to replace it. So where nodes are in step, one of them is the next home.
std::string StateMoves::NextHome(const proto::FunctionRecord& keeper, const std::string& node) const {
  const auto& digest = keeper.model_digest();
  if (parts_.state_replicas.AnyInStep(digest)) return parts_.state_replicas.Successor(digest, false);
  const auto& members = parts_.members.table();
  std::set<std::string> without{node};
  if (const auto failed = failed_.find(digest); failed != failed_.end()) without.insert(failed->second.node);
  auto to = PlacementTable::OtherHome(keeper, members, without);
  return to.empty() ? PlacementTable::OtherHome(keeper, members, {node}) : to;
}

// --- as an operator ordered ---

void StateMoves::Order(Ask ask, const proto::MoveFunction& wish) {
  const auto& functions = parts_.catalogue.functions().table();
  const auto* record = functions.Find(wish.key());
  const auto status =
      record == nullptr ? NotOneFunction(parts_.catalogue, wish.key()) : CheckOrder(*record, wish.node());
  if (!status.ok()) return parts_.admin.Reply(ask, Failure<proto::AdminReply>(status));
  const auto& digest = record->model_digest();
  const auto home = parts_.copies.table().homes().Of(digest);
  if (home == wish.node()) return AnswerOrder(ask, digest);
  Begin(KeepersOf(functions, digest), home, wish.node(), ask);
  parts_.copies.Place();  // the old home has not adopted the model any more, whenever it answers
}

absl::Status StateMoves::CheckOrder(const proto::FunctionRecord& record, const std::string& node) const {
  const auto& digest = record.model_digest();
  const auto what = Describe(record.key());
  if (record.state().empty())
    return absl::InvalidArgumentError(absl::StrCat(
        what, " keeps no state, so nothing of it can be moved: nodes take its model as requests need it"));
  const auto& members = parts_.members.table();
  const auto* member = members.Find(node);
  if (member == nullptr || !parts_.members.HasNode(node))
    return absl::NotFoundError(absl::StrCat("there is no node '", node,
                                            "' that is connected; `troupe node list` shows those that are"));
  const auto home = parts_.copies.table().homes().Of(digest);
  if (home.empty() || !parts_.members.HasNode(home))
    return absl::UnavailableError(absl::StrCat(
        what, ": node '", home, "', which has its state, is not connected: ask again when it is back"));
  // It has nothing to give up, and whatever it is to have comes from a node in step.
  if (parts_.state_replicas.HomeIsEmpty(digest))
    return absl::UnavailableError(
        absl::StrCat(what, ": node '", home,
                     "' came back with an empty disk, and a node that has copies of the state replaces it ",
                     "as soon as it is there (`troupe function show` names these nodes): ask again then"));
  if (home == node) return absl::OkStatus();
  if (moves_.contains(digest) || parts_.copies.table().copies().BeingAdopted(digest))
    return absl::UnavailableError(
        absl::StrCat(what, ": its state moves, or its model is being adopted: ask again in a moment"));
  std::set<std::string> others;
  for (const auto& [name, other] : members.members())
    if (name != node) others.insert(name);
  if (PlacementTable::OtherHome(record, members, others) != node)
    return absl::FailedPreconditionError(
        absl::StrCat("node '", node, "' cannot have ", what,
                     ": it drains, has no GPU that works, or has too little memory"));
  return absl::OkStatus();
}

void StateMoves::AnswerOrder(Ask ask, const std::string& digest) {
  proto::AdminReply reply;
  for (const auto* keeper : KeepersOf(parts_.catalogue.functions().table(), digest))
    *reply.add_functions() = AnswerFunctionQuery(keeper->key(), parts_.State()).functions(0);
  parts_.admin.Reply(ask, std::move(reply));
}

// --- when the home is gone ---

void StateMoves::Restore(const std::string& digest, const std::string& from, const std::string& to,
                         bool keeps) {
  if (moves_.contains(digest)) return;
  auto& move = moves_[digest];
  move = {.number = ++last_,
          .from = {from, 0},
          .to = {to, 0},
          .restores = true,
          .keeps = keeps,
          .from_is_empty = parts_.state_replicas.HomeIsEmpty(digest)};
  parts_.copies.BeginMove(digest);
  Store(moves_.find(digest));
}

// --- the steps of a move ---

bool StateMoves::Stores(const std::string& digest) const {
  const auto move = moves_.find(digest);
  return move != moves_.end() &&
         (move->second.stage == Stage::kStoring || move->second.stage == Stage::kNotStored);
}

StateMoves::Table::iterator StateMoves::Find(const std::string& digest, std::uint64_t number, Stage stage) {
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
  if (move.copied) {
    const auto& copied = event.reply->copied();
    if (std::ranges::find(copied, move.to.node) != copied.end()) return Store(found);
    return End(found, absl::UnavailableError(
                          absl::StrCat("node '", move.to.node, "' lacks a copy of the newest image")));
  }
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

void StateMoves::Store(Table::iterator found) {
  auto& [digest, move] = *found;
  // Its functions were removed meanwhile.
  if (parts_.copies.table().homes().Of(digest) != move.from.node)
    return End(found, absl::CancelledError("its functions were removed"));
  if (!Stores(digest)) {
    // The old home has given up all states and has forgotten none, so it is in step until other nodes have copies.
    if (!move.restores) move.keeps = IsReplicated(parts_.catalogue.functions().table(), digest);
    move.others = parts_.state_replicas.Whole(digest);
    move.others.erase(move.from.node);
    move.others.erase(move.to.node);
  }
  move.stage = Stage::kStoring;
  move.asked_turned = move.turned;
  parts_.commits.Add(ChangesOf(digest, move), HomeMoved{digest, move.number});
}

Changes StateMoves::ChangesOf(const std::string& digest, const Move& move) const {
  const auto term = parts_.state_replicas.TermOf(digest) + 1;
  if (move.turned) return HomeChanges(digest, move.from.node, term + 1, move.others, move.from_is_empty);
  std::set<std::string> in_step;
  if (move.keeps) in_step.insert(move.from.node);
  return HomeChanges(digest, move.to.node, term, in_step);
}

bool StateMoves::MayTurn(const Move& move) {
  const bool old_has_them = !move.from_is_empty && (move.keeps || !move.restores);
  return old_has_them || !move.others.empty();
}

bool StateMoves::Loses(Move& move, const std::string& node) {
  if (node == move.from.node) {
    const bool named = std::exchange(move.keeps, false) || move.turned;
    return !std::exchange(move.from_is_empty, true) && named;
  }
  if (node == move.to.node) return MayTurn(move) && !std::exchange(move.turned, true);
  return move.others.erase(node) > 0 && move.turned;
}

Changes StateMoves::DiskIsNew(const std::string& node) {
  Changes changes;
  for (auto& [digest, move] : moves_)
    if (Stores(digest) && Loses(move, node)) changes.Add(ChangesOf(digest, move));
  return changes;
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
  if (move.turned && !move.asked_turned) return Store(found);
  if (move.turned) return TurnedBack(found);
  const auto moved = move;
  TellMoved(stored.digest, move);
  parts_.copies.Moved(stored.digest, moved.to.node);
  failed_.erase(stored.digest);
  Close(found);
  stale_[moved.from.node].insert(stored.digest);
  parts_.state_replicas.Moved(stored.digest, moved.to.node, moved.keeps ? moved.from.node : "");
  if (moved.ask) AnswerOrder(*moved.ask, stored.digest);
  parts_.copies.Place();
}

// As after a move there and one back.
void StateMoves::TurnedBack(Table::iterator found) {
  const auto digest = found->first;
  const auto move = found->second;
  End(found, absl::UnavailableError(absl::StrCat("node '", move.to.node, "' came back with an empty disk")));
  parts_.state_replicas.TurnedBack(digest, move.others, move.from_is_empty);
  parts_.copies.Place();
}

void StateMoves::TellLost(const std::string& digest, const std::string& home) {
  const bool copied = parts_.state_replicas.AnyInStep(digest);
  for (const auto* keeper : KeepersOf(parts_.catalogue.functions().table(), digest))
    parts_.out.Tell("manager", "state-lost",
                    absl::StrCat("function '", keeper->key().name(), "' version ", keeper->key().version(),
                                 ": node '", home, copied ? "' and all nodes that had copies" : "'",
                                 " came back with an empty disk; its state and its sequences begin anew"));
}

void StateMoves::TellMoved(const std::string& digest, const Move& move) {
  if (move.from.node == move.to.node) return TellLost(digest, move.to.node);
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

void StateMoves::End(Table::iterator found, const absl::Status& why) {
  const auto& [digest, move] = *found;
  if (move.stage != Stage::kGivingUp) stale_[move.to.node].insert(digest);
  const auto known = failed_.find(digest);
  const bool again = known != failed_.end();
  if (move.ask) {
    parts_.admin.Reply(*move.ask, Failure<proto::AdminReply>(absl::Status(
                                      why.code(), absl::StrCat("the state stays on node '", move.from.node,
                                                               "' (", why.message(), ")"))));
    return Close(found);
  }
  // The other node may have done nothing wrong; where there is a third one, that is tried.
  failed_[digest] = {parts_.out.now() + parts_.settings.placement_retry, move.to.node};
  if (!again)
    parts_.out.Tell("manager", "state-not-moved",
                    absl::StrCat("model ", digest, ": the states of its functions stay on node '",
                                 move.from.node, "', and did not come to '", move.to.node, "' (",
                                 why.message(), "); it is tried again by itself"));
  Close(found);
}

void StateMoves::Close(Table::iterator found) {
  const auto digest = found->first;
  moves_.erase(found);
  parts_.copies.EndMove(digest);
}

// A node that is heard has taken in what it was told when it joined. What it has is of no use to anyone, and does no harm, unless
// it is in step.
void StateMoves::Heard(const std::string& node) {
  const auto stale = stale_.extract(node);
  if (stale.empty() || !parts_.members.HasNode(node)) return;
  for (const auto& digest : stale.mapped())
    if (parts_.copies.table().homes().Of(digest) != node && !moves_.contains(digest) &&
        !parts_.state_replicas.InStep(digest, node))
      parts_.out.Add(TellForget{node, digest, parts_.state_replicas.TermOf(digest)});
}

}  // namespace troupe::cluster

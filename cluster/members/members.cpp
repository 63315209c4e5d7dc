#include "cluster/members/members.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

Members::Members(Parts& parts) : parts_(parts), table_(parts.settings.membership), feed_(parts.catalogue) {
  table_.SetEpochFloor(parts.catalogue.last_epoch());
}

void Members::Start() {
  last_pulse_ = parts_.out.now();
  gathered_ = last_pulse_ + parts_.settings.membership.dead_after;
}

bool Members::Awaits(const std::string& name) const {
  return parts_.out.now() < gathered_ && table_.Find(name) == nullptr;
}

absl::StatusOr<std::uint64_t> Members::Admit(const JoinAsked& event) {
  const auto& join = event.join;
  const auto& cluster = parts_.catalogue.cluster();
  absl::StatusOr<std::uint64_t> epoch =
      join.cluster().empty() || join.cluster() == cluster
          ? table_.Join(join, parts_.out.now(), event.daemon)
          : absl::FailedPreconditionError(absl::StrCat(
                "'", join.member().name(), "' is a member of cluster ", join.cluster(), ", and this is ",
                cluster, ": give it the address of its own manager; or, to make it a member here, remove ",
                "the file 'cluster' in its data directory, with what it has of the other one"));
  if (absl::IsAlreadyExists(epoch.status()) && !event.certificate.empty())
    epoch = absl::AlreadyExistsError(
        absl::StrCat(epoch.status().message(), "; the one that asks shows the certificate ",
                     event.certificate, ": each daemon needs a certificate of its own"));
  if (absl::IsFailedPrecondition(epoch.status()) || absl::IsAlreadyExists(epoch.status()))
    TellRefused(join, epoch.status());
  return epoch;
}

void Members::TellRefused(const proto::JoinRequest& join, const absl::Status& why) {
  // Unknown names are remembered up to a bound only; then some are told again.
  constexpr std::size_t kRemembered = 1000;
  if (refused_.size() >= kRemembered) refused_.clear();
  if (!refused_.insert(join.member().name()).second) return;
  parts_.audit.Write(JoinEntry(join, why), {});
  parts_.out.Tell("manager", "member-refused", std::string(why.message()));
}

void Members::Reply(Ask ask, proto::JoinReply reply) {
  parts_.out.Add(Answer<proto::JoinReply>{ask, std::move(reply)});
}

void Members::On(const JoinAsked& event) {
  const auto& join = event.join;
  if (!event.allowed.ok()) {
    TellRefused(join, event.allowed);
    return Reply(event.ask, Failure<proto::JoinReply>(event.allowed));
  }
  if (join.member().epoch() != 0) return Reply(event.ask, CatchUp(join));
  const auto epoch = Admit(event);
  if (!epoch.ok()) return Reply(event.ask, Failure<proto::JoinReply>(epoch.status()));
  const auto& name = join.member().name();
  refused_.erase(name);
  Link(event);
  if (!event.gateway) parts_.state_moves.NodeJoined(name);
  // No epoch is ever given twice, not even by a manager that forgot everything else.
  auto changes = EpochChanges(parts_.catalogue, *epoch);
  if (!event.gateway && join.cluster().empty()) changes.Add(parts_.state_replicas.DiskIsNew(name));
  parts_.copies.NodeJoined(name, {join.adopted().begin(), join.adopted().end()});
  if (!event.gateway) parts_.state_replicas.NodeJoined(name);
  parts_.commits.Add(std::move(changes),
                     EpochStored{event.ask, name, *epoch, JoinEntry(join, absl::OkStatus())});
}

void Members::On(const EpochStored& stored, const absl::Status& status) {
  if (!status.ok()) return Reply(stored.ask, Failure<proto::JoinReply>(status));
  parts_.catalogue.ApplyEpoch(stored.epoch);
  parts_.out.Tell(stored.name, "member-joined", absl::StrCat("epoch ", stored.epoch));
  if (parts_.catalogue.Drained(stored.name)) BeginDrain(stored.name);
  Changed();
  parts_.audit.Write(stored.entry, JoinAudited{stored.ask, stored.epoch});
}

void Members::Welcome(Ask ask, std::uint64_t epoch) {
  Reply(ask, JoinedAs(epoch, UpdateFeed::Since(0, parts_.catalogue, table_)));
}

void Members::Link(const JoinAsked& event) {
  const auto& name = event.join.member().name();
  if (event.gateway) {
    fronts_.erase(name);
    if (event.front != 0) fronts_[name] = event.front;
  } else {
    nodes_.insert(name);
  }
  parts_.out.Add(Connect{event.ask, name});
}

proto::JoinReply Members::CatchUp(const proto::JoinRequest& ask) {
  const auto& member = ask.member();
  const bool in_parts = !ask.functions_after().empty();
  // A member that joins sends no heartbeats before it has the last part.
  const auto status = in_parts ? table_.HearOf(member.name(), member.epoch(), parts_.out.now())
                               : table_.CheckEpoch(member.name(), member.epoch());
  if (!status.ok()) return Failure<proto::JoinReply>(status);
  return JoinedAs(member.epoch(), in_parts
                                      ? UpdateFeed::SnapshotAfter(ask.functions_after(), parts_.catalogue)
                                      : UpdateFeed::Since(ask.known_revision(), parts_.catalogue, table_));
}

proto::JoinReply Members::JoinedAs(std::uint64_t epoch, proto::ClusterUpdate state) const {
  proto::JoinReply reply;
  reply.set_epoch(epoch);
  reply.set_cluster(parts_.catalogue.cluster());
  reply.set_heartbeat_ns(parts_.settings.membership.heartbeat.count());
  reply.set_lease_ns(parts_.settings.member_lease.count());
  *reply.mutable_state() = std::move(state);
  return reply;
}

void Members::On(const HeartbeatHeard& event) {
  const auto& heartbeat = event.heartbeat;
  proto::HeartbeatReply reply;
  const auto* before = table_.Find(heartbeat.name());
  // What is told twice, or was overtaken, counts once.
  const bool news = before != nullptr && heartbeat.sequence() > before->last_sequence;
  const bool took_parts = before != nullptr && TakesInputParts(before->record);
  reply.set_known(table_.Hear(heartbeat, parts_.out.now()).ok());
  if (reply.known() && news) {
    for (const auto& model : heartbeat.demand()) parts_.copies.Asked(model);
    parts_.scaling.Hear(heartbeat);
  }
  if (reply.known()) {
    parts_.state_moves.Heard(heartbeat.name());
    // Only nodes have GPUs and host regions that functions use.
    if (HasNode(heartbeat.name())) reply.set_usage_stored(parts_.usage.Hear(heartbeat));
    // A worker of another release has come: gateways are not to wait for the next change of the members.
    if (TakesInputParts(table_.Find(heartbeat.name())->record) != took_parts) Changed();
  }
  for (auto& told : table_.TakeEvents(heartbeat)) {
    // One clock for the whole cluster.
    told.set_unix_ns(parts_.out.unix_now() - std::max<std::int64_t>(0, told.age_ns()));
    told.clear_age_ns();
    parts_.out.Keep(told);
  }
  reply.set_revision(parts_.catalogue.revision());
  parts_.out.Add(Answer<proto::HeartbeatReply>{event.ask, std::move(reply)});
}

void Members::On(const LeaveAsked& event) {
  if (table_.Leave(event.leave, parts_.out.now()).ok()) Pulse();
}

void Members::On(const MemberLost& event) {
  if (!event.gateway) nodes_.erase(event.name);
  fronts_.erase(event.name);
  if (const auto* member = table_.Find(event.name))
    table_.ConnectionLost(event.name, member->record.epoch(), parts_.out.now());
  Pulse();
}

void Members::ExcuseStandstill() {
  const auto now = parts_.out.now();
  const auto stood = now - std::exchange(last_pulse_, now) - parts_.settings.tick;
  if (stood < table_.limits().heartbeat) return;
  table_.Excuse(stood, now);
  if (stood >= table_.limits().suspect_after)
    parts_.out.Tell("manager", "manager-stood-still",
                    absl::StrCat("for ", FormatDuration(stood), ": not counted as its members' silence"));
}

void Members::Pulse() {
  ExcuseStandstill();
  bool changed = false;
  for (const auto& transition : table_.Tick(parts_.out.now())) changed |= Act(transition);
  if (changed) Changed();
  parts_.copies.Place();
}

bool Members::Act(const Transition& transition) {
  const bool gone = transition.to == proto::MEMBER_DEAD || transition.to == proto::MEMBER_LEFT;
  // A member that has joined again already lives here with a new epoch, and nothing of that life is forgotten.
  const auto* now = table_.Find(transition.name);
  const bool back = now != nullptr && now->record.epoch() != transition.epoch;
  if (gone && !back) Forget(transition);
  const bool joined = transition.to == proto::MEMBER_ALIVE && transition.from != proto::MEMBER_SUSPECT &&
                      transition.from != proto::MEMBER_DRAINING;
  if (!joined)  // else it was told when it joined
    parts_.out.Tell(
        transition.name, absl::StrCat("member-", StateName(transition.to)),
        absl::StrCat("was ", StateName(transition.from), ", silent for ", FormatDuration(transition.silent)));
  // Suspicion is news for people; others act on it only when it has become certain.
  return gone || (transition.to != proto::MEMBER_SUSPECT && transition.from != proto::MEMBER_SUSPECT);
}

void Members::Forget(const Transition& transition) {
  const auto& name = transition.name;
  parts_.copies.NodeGone(name);
  nodes_.erase(name);
  fronts_.erase(name);
  parts_.out.Add(Disconnect{name});
  if (transition.kind == proto::MEMBER_GATEWAY) parts_.claims.GatewayLost(name);
}

void Members::Changed() {
  parts_.catalogue.Advance();
  parts_.out.Add(TellMembers{feed_.Next(parts_.catalogue, table_)});
  parts_.copies.Place();
}

void Members::BeginDrain(const std::string& name) {
  if (!HasNode(name) || !table_.SetDraining(name, true).ok()) return;
  proto::DrainNode wish;
  wish.set_name(name);
  wish.set_drain(true);
  parts_.out.Add(AskDrain{0, std::move(wish)});
}

}  // namespace troupe::cluster

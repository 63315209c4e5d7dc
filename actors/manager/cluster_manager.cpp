#include "actors/manager/cluster_manager.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/manager/cluster_manager_actor.hpp"

namespace troupe::actors {

ClusterManager::behavior_type ClusterManager::make_behavior() {
  board_.SetHomes(catalogue_.homes());
  set_down_handler([this](caf::down_msg& down) { Down(down); });
  After(this, options_.tick, MakeTick(kPulse));
  Commit(catalogue_.BirthBatch(), [](const absl::Status&) {});
  return {
      [this](const proto::JoinRequest& join, const NodeControllerActor& node) {
        return Join(
            join, [node](MemberLinks& links, const std::string& name) { links.AddNode(name, node); }, node);
      },
      [this](const proto::JoinRequest& join, const RouterActor& router) {
        return Join(
            join, [router](MemberLinks& links, const std::string& name) { links.AddGateway(name, router); },
            router);
      },
      [this](const proto::Heartbeat& heartbeat) { return Hear(heartbeat); },
      [this](const proto::LeaveRequest& leave) {
        if (members_.Leave(leave, Now(this)).ok()) Pulse();
      },
      [this](proto::AdminRequest& request) { return Admin(request); },
      [this](proto::UploadChunk& chunk) { return Upload(chunk); },
      [this](const proto::FetchObject& part) { return Fetch(part); },
      [this](const proto::ReleaseFetched& release) { ReleasePart(release.release()); },
      [this](proto::StartRun& command, const WorkflowRunActor& run) {
        monitor(run);
        run_links_.Add(command.run(), run);
        return Start(command);
      },
      [this](proto::StartRun& command) { return Start(command); },
      [this](const proto::CommitStep& command) { return Record(command); },
      [this](const proto::FinishRun& command) { return Record(command); },
      [this](const proto::StoreBlob& blob) { return Keep(blob); },
      [this](const proto::Continue& message) { continuations_.Resume(message); },
      [this](const proto::Tick& tick) { OnTick(tick); },
  };
}

void ClusterManager::on_exit() {
  continuations_.Clear();
  mutations_.Clear();
  links_.Clear();
  run_links_.Clear();
}

void ClusterManager::Commit(storage::Batch batch, std::function<void(absl::Status)> done) {
  auto callback = continuations_.Make<bool>(
      this, [done = std::move(done)](const absl::StatusOr<bool>& committed) { done(committed.status()); });
  store_.Commit(std::move(batch), [callback](absl::Status status) {
    callback(status.ok() ? absl::StatusOr<bool>(true) : absl::StatusOr<bool>(std::move(status)));
  });
}

template <class Link, class Handle>
JoinPromise ClusterManager::Join(const proto::JoinRequest& join, Link link, const Handle& member) {
  auto promise = make_response_promise<proto::JoinReply>();
  const auto epoch = members_.Join(join, Now(this));
  if (!epoch.ok()) {
    Deliver(promise, Failure<proto::JoinReply>(epoch.status()));
    return promise;
  }
  const auto name = join.member().name();
  link(links_, name);
  monitor(member);
  board_.NodeJoined(name, {join.adopted().begin(), join.adopted().end()});
  // No epoch is ever given twice, not even by a manager that forgot everything else.
  Commit(catalogue_.EpochBatch(*epoch),
         [this, promise, name, epoch = *epoch](const absl::Status& status) mutable {
           if (!status.ok()) return Deliver(promise, Failure<proto::JoinReply>(status));
           catalogue_.ApplyEpoch(epoch);
           Tell(name, "member-joined", absl::StrCat("epoch ", epoch));
           Changed();
           proto::JoinReply reply;
           reply.set_epoch(epoch);
           reply.set_cluster(catalogue_.cluster());
           reply.set_heartbeat_ns(options_.membership.heartbeat.count());
           *reply.mutable_state() = Snapshot();
           Deliver(promise, std::move(reply));
         });
  return promise;
}

proto::HeartbeatReply ClusterManager::Hear(const proto::Heartbeat& heartbeat) {
  proto::HeartbeatReply reply;
  reply.set_known(members_.Hear(heartbeat, Now(this)).ok());
  for (auto& event : members_.TakeEvents(heartbeat)) {
    // One clock for the whole cluster.
    event.set_unix_ns(options_.unix_now() - std::max<std::int64_t>(0, event.age_ns()));
    event.clear_age_ns();
    Keep(event);
  }
  reply.set_revision(catalogue_.revision());
  return reply;
}

void ClusterManager::Down(const caf::down_msg& down) {
  calls_.PeerDown(down.source);
  run_links_.Remove(down.source);
  const auto name = links_.Remove(down.source);
  if (name.empty()) return;
  if (const auto* member = members_.Find(name))
    members_.ConnectionLost(name, member->record.epoch(), Now(this));
  Pulse();
}

void ClusterManager::Pulse() {
  bool changed = false;
  for (const auto& transition : members_.Tick(Now(this))) {
    const bool gone = transition.to == proto::MEMBER_DEAD || transition.to == proto::MEMBER_LEFT;
    if (gone) {
      board_.NodeGone(transition.name);
      links_.Forget(transition.name);
    }
    // Suspicion is news for people; others act on it only when it has become certain.
    changed |= transition.to != proto::MEMBER_SUSPECT && transition.from != proto::MEMBER_SUSPECT;
    changed |= gone;
    const bool joined = transition.to == proto::MEMBER_ALIVE && transition.from != proto::MEMBER_SUSPECT &&
                        transition.from != proto::MEMBER_DRAINING;
    if (joined) continue;  // told when it joined
    Tell(
        transition.name, absl::StrCat("member-", StateName(transition.to)),
        absl::StrCat("was ", StateName(transition.from), ", silent for ", FormatDuration(transition.silent)));
  }
  if (changed) Changed();
  Place();
}

void ClusterManager::Changed() {
  catalogue_.Advance();
  const auto update = Snapshot();
  for (const auto& [name, node] : links_.nodes()) send(node, update);
  for (const auto& [name, gateway] : links_.gateways()) send(gateway, update);
  Place();
}

proto::ClusterUpdate ClusterManager::Snapshot() const {
  auto update = catalogue_.functions().ChangesSince(0);
  update.set_snapshot(true);
  update.set_revision(catalogue_.revision());
  for (auto& record : members_.Records()) *update.add_members() = std::move(record);
  for (auto& record : board_.Records()) *update.add_placements() = std::move(record);
  update.set_workflows_listed(true);
  for (const auto& [name, versions] : catalogue_.workflows().workflows())
    for (const auto& [version, record] : versions) *update.add_workflows() = record;
  return update;
}

void ClusterManager::Place() {
  const auto moves =
      board_.Plan(catalogue_.functions().table(), catalogue_.functions().revision(), members_, Now(this));
  const auto homes = KeepHomes();
  TellUnreachable();
  for (const auto& move : moves) {
    const auto node = links_.Node(move.node);
    if (!node) continue;
    if (move.adopt) {
      if (!homes.contains(move.digest)) Adopt(move.digest, move.node, node);
    } else {
      proto::DisownModel disown;
      disown.set_model_digest(move.digest);
      send(node, std::move(disown));
      board_.Disowned(move.digest, move.node);
    }
  }
}

// Durable first: no state begins on a node that the store does not name. The adoptions that wait for it begin
// then.
PlacementBoard::Homes ClusterManager::KeepHomes() {
  const auto homes = board_.TakeNewHomes();
  for (const auto& [digest, name] : homes) {
    Commit(Catalogue::HomeBatch(digest, name),
           [this, digest = digest, name = name](const absl::Status& status) {
             if (!status.ok()) {
               board_.Unbind(digest);
               return board_.AdoptFailed(digest, name, Now(this));
             }
             const auto node = links_.Node(name);
             if (node && board_.IsAsked(digest, name)) Adopt(digest, name, node);
           });
  }
  const auto old = board_.TakeOldHomes();
  if (!old.empty()) Commit(Catalogue::NoHomeBatch(old), [](const absl::Status&) {});
  return homes;
}

void ClusterManager::TellUnreachable() {
  std::set<std::string> now;
  for (const auto& problem : board_.problems()) {
    if (!board_.HasHome(problem.digest) || !absl::IsUnavailable(problem.why)) continue;
    now.insert(problem.digest);
    if (!unreachable_.contains(problem.digest))
      Tell("manager", "state-unreachable", std::string(problem.why.message()));
  }
  unreachable_ = std::move(now);
}

void ClusterManager::Adopt(const std::string& digest, const std::string& name,
                           const NodeControllerActor& node) {
  const auto* record = catalogue_.functions().table().UserOf(digest);
  if (record == nullptr) return board_.Disowned(digest, name);
  proto::AdoptModel adopt;
  *adopt.mutable_function() = *record;
  Call<proto::AdoptModelReply>(
      this, calls_, node, options_.adopt_timeout, std::move(adopt),
      [this, digest, name, function = record->key().name()](absl::StatusOr<proto::AdoptModelReply> reply) {
        auto status = reply.status();
        if (reply.ok()) status = {static_cast<absl::StatusCode>(reply->code()), reply->message()};
        if (status.ok()) {
          board_.Adopted(digest, name);
          Tell(name, "model-adopted", absl::StrCat("function '", function, "'"));
        } else {
          board_.AdoptFailed(digest, name, Now(this));
          Tell(name, "adoption-failed", absl::StrCat("function '", function, "': ", status.message()));
        }
        AdoptionEnded(digest, status);
      });
}

void ClusterManager::AdoptionEnded(const std::string& digest, const absl::Status& status) {
  const auto [begin, end] = deploying_.equal_range(digest);
  std::vector<std::function<void(absl::Status)>> waiting;
  for (auto it = begin; it != end; ++it) waiting.push_back(std::move(it->second));
  deploying_.erase(begin, end);
  for (auto& done : waiting) done(status);
}

void ClusterManager::Keep(const proto::Event& event) {
  events_.Add(event);
  if (options_.on_event) options_.on_event(event);
}

void ClusterManager::OnTick(const proto::Tick& tick) {
  if (tick.what() == kRelease) return ReleasePart(tick.token());
  After(this, options_.tick, tick);
  Pulse();
}

absl::StatusOr<ClusterManagerActor> SpawnClusterManager(caf::actor_system& system, ManagerOptions options,
                                                        storage::MetadataStore& store,
                                                        ModelRepository& repository) {
  TROUPE_ASSIGN_OR_RETURN(auto catalogue, Catalogue::Load(store, options.new_cluster_id));
  return caf::actor_cast<ClusterManagerActor>(system.spawn<ClusterManager>(
      std::move(options), std::move(catalogue), std::ref(store), std::ref(repository)));
}

}  // namespace troupe::actors

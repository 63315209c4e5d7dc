#include "actors/manager/cluster_manager.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "actors/manager/audit.hpp"
#include "actors/manager/cluster_manager_actor.hpp"
#include "actors/peers/message_rights.hpp"
#include "base/wire_status.hpp"

namespace troupe::actors {

ClusterManager::behavior_type ClusterManager::make_behavior() {
  placement_.SetHomes(catalogue_.homes());
  set_down_handler([this](caf::down_msg& down) { Down(down); });
  After(this, options_.tick, MakeTick(kPulse));
  last_pulse_ = last_collected_ = Now(this);
  for (const auto* run : catalogue_.runs().List(""))
    if (!RunEnded(run->state())) run_links_.Loosen(run->start().run(), Now(this));
  Commit(catalogue_.BirthBatch(), [](const absl::Status&) {});
  TellLacking();
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
      [this](const proto::JoinRequest& join, const RouterActor& router, const FrontActor& front) {
        return Join(
            join,
            [router, front](MemberLinks& links, const std::string& name) {
              links.AddGateway(name, router, front);
            },
            router);
      },
      [this](const proto::Heartbeat& heartbeat) { return Hear(heartbeat); },
      [this](const proto::LeaveRequest& leave) {
        if (CheckMemberName(*Sender(), leave.name()).ok() && members_.Leave(leave, Now(this)).ok()) Pulse();
      },
      [this](proto::AdminRequest& request) { return Admin(request); },
      [this](proto::UploadChunk& chunk) { return Upload(chunk); },
      [this](const proto::FetchObject& part) { return Fetch(part); },
      [this](const proto::ReleaseFetched& release) { ReleasePart(release.release()); },
      [this](proto::StartRun& command, const WorkflowRunActor& run) { return Start(command, run); },
      [this](proto::StartRun& command) { return Start(command, WorkflowRunActor()); },
      [this](const proto::CommitStep& command) { return Record(command); },
      [this](const proto::FinishRun& command) { return Record(command); },
      [this](const proto::StoreBlob& blob) { return Keep(blob); },
      [this](const proto::Continue& message) { continuations_.Resume(message); },
      [this](const proto::Tick& tick) { OnTick(tick); },
      [this](const AllowFaults& allow) { faults_ = allow.hook; },
  };
}

void ClusterManager::on_exit() {
  calls_.Clear();
  continuations_.Clear();
  mutations_.Clear();
  links_.Clear();
  run_links_.Clear();
  committing_.clear();  // promises hold this actor
  deploying_.clear();
}

void ClusterManager::Commit(storage::Batch batch, std::function<void(absl::Status)> done) {
  auto callback = continuations_.Make<bool>(
      this, [done = std::move(done)](const absl::StatusOr<bool>& committed) { done(committed.status()); });
  store_.Commit(std::move(batch), [callback](absl::Status status) {
    callback(status.ok() ? absl::StatusOr<bool>(true) : absl::StatusOr<bool>(std::move(status)));
  });
}

// The others are served; a node that has the model goes on with its copy. Gateways are told with the record.
void ClusterManager::TellLacking() {
  if (!options_.lacking) return;
  std::vector<std::pair<proto::FunctionKey, std::string>> problems;
  for (const auto& [name, versions] : catalogue_.functions().table().functions()) {
    for (const auto& [number, record] : versions) {
      const auto lacking = options_.lacking(record);
      if (lacking.empty()) continue;
      problems.emplace_back(
          record.key(),
          absl::StrCat("cannot be brought to nodes: the store lacks its ", absl::StrJoin(lacking, ", "),
                       "; deploy it again, or restore a backup ('troupe store restore')"));
    }
  }
  for (auto& [key, problem] : problems) {
    Tell("manager", "function-broken", absl::StrCat(cluster::Describe(key), " ", problem));
    catalogue_.NoteProblem(key, std::move(problem));
  }
}

absl::StatusOr<std::uint64_t> ClusterManager::Welcome(const proto::JoinRequest& join,
                                                      const std::string& daemon, const Peer& sender) {
  const auto& cluster = catalogue_.cluster();
  absl::StatusOr<std::uint64_t> epoch =
      join.cluster().empty() || join.cluster() == cluster
          ? members_.Join(join, Now(this), daemon)
          : absl::FailedPreconditionError(absl::StrCat(
                "'", join.member().name(), "' is a member of cluster ", join.cluster(), ", and this is ",
                cluster, ": give it the address of its own manager; or, to make it a member here, remove ",
                "the file 'cluster' in its data directory, with what it has of the other one"));
  if (absl::IsAlreadyExists(epoch.status()) && !sender.name.empty())
    epoch = absl::AlreadyExistsError(
        absl::StrCat(epoch.status().message(), "; the one that asks shows the certificate ",
                     sender.ToString(), ": each daemon needs a certificate of its own"));
  if (absl::IsFailedPrecondition(epoch.status()) || absl::IsAlreadyExists(epoch.status()))
    TellRefused(join, epoch.status());
  return epoch;
}

void ClusterManager::TellRefused(const proto::JoinRequest& join, const absl::Status& why) {
  // Names of strangers are remembered up to a bound only; then some are told again.
  constexpr std::size_t kRemembered = 1000;
  if (refused_.size() >= kRemembered) refused_.clear();
  if (!refused_.insert(join.member().name()).second) return;
  WriteDown(JoinLine(join, why), [] {});
  Tell("manager", "member-refused", std::string(why.message()));
}

template <class Link, class Handle>
JoinPromise ClusterManager::Join(const proto::JoinRequest& join, Link link, const Handle& member) {
  const auto target = caf::actor_cast<FaultTargetActor>(current_sender());  // a promise takes the sender away
  const auto sender = Sender();
  auto allowed = CheckMember(*sender, join.member().name(), join.member().kind());
  if (allowed.ok() && target && member.node() != target.node())
    allowed = absl::InvalidArgumentError("the member's actors are in another process than the member");
  auto promise = make_response_promise<proto::JoinReply>();
  if (!allowed.ok()) {
    TellRefused(join, allowed);
    Deliver(promise, Failure<proto::JoinReply>(allowed));
    return promise;
  }
  if (join.member().epoch() != 0) {
    Deliver(promise, CatchUp(join));
    return promise;
  }
  const auto epoch = Welcome(join, caf::to_string(caf::actor_cast<caf::actor_addr>(member)), *sender);
  if (!epoch.ok()) {
    Deliver(promise, Failure<proto::JoinReply>(epoch.status()));
    return promise;
  }
  const auto name = join.member().name();
  refused_.erase(name);
  link(links_, name);
  links_.AddFaultTarget(name, target);
  monitor(member);
  placement_.NodeJoined(name, {join.adopted().begin(), join.adopted().end()});
  // No epoch is ever given twice, not even by a manager that forgot everything else.
  Commit(catalogue_.EpochBatch(*epoch), [this, promise, name, line = JoinLine(join, absl::OkStatus()),
                                         epoch = *epoch](const absl::Status& status) mutable {
    if (!status.ok()) return Deliver(promise, Failure<proto::JoinReply>(status));
    catalogue_.ApplyEpoch(epoch);
    Tell(name, "member-joined", absl::StrCat("epoch ", epoch));
    if (catalogue_.Drained(name)) BeginDrain(name);
    Changed();
    WriteDown(line, [this, promise, epoch]() mutable { Deliver(promise, JoinedAs(epoch, 0)); });
  });
  return promise;
}

proto::JoinReply ClusterManager::CatchUp(const proto::JoinRequest& ask) const {
  const auto& member = ask.member();
  if (const auto status = members_.CheckEpoch(member.name(), member.epoch()); !status.ok())
    return Failure<proto::JoinReply>(status);
  return JoinedAs(member.epoch(), ask.known_revision());
}

proto::JoinReply ClusterManager::JoinedAs(std::uint64_t epoch, std::uint64_t known_revision) const {
  proto::JoinReply reply;
  reply.set_epoch(epoch);
  reply.set_cluster(catalogue_.cluster());
  reply.set_heartbeat_ns(options_.membership.heartbeat.count());
  reply.set_lease_ns(options_.member_lease.count());
  *reply.mutable_state() = UpdateFeed::Since(known_revision, catalogue_, members_);
  return reply;
}

proto::HeartbeatReply ClusterManager::Hear(const proto::Heartbeat& heartbeat) {
  proto::HeartbeatReply reply;
  if (!CheckMemberName(*Sender(), heartbeat.name()).ok()) return reply;  // it joins, and hears why not
  reply.set_known(members_.Hear(heartbeat, Now(this)).ok());
  if (reply.known())
    for (const auto& model : heartbeat.demand())
      placement_.Asked(model.model_digest(), model.requests(), Now(this));
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
  for (const auto& run : run_links_.Remove(down.source)) OwnerLost(run);
  const auto name = links_.Remove(down.source);
  if (name.empty()) return;
  if (const auto* member = members_.Find(name))
    members_.ConnectionLost(name, member->record.epoch(), Now(this));
  Pulse();
}

void ClusterManager::ExcuseStandstill() {
  const auto now = Now(this);
  const auto stood = now - std::exchange(last_pulse_, now) - options_.tick;
  if (stood < members_.limits().heartbeat) return;
  members_.Excuse(stood, now);
  if (stood >= members_.limits().suspect_after)
    Tell("manager", "manager-stood-still",
         absl::StrCat("for ", FormatDuration(stood), ": not counted as its members' silence"));
}

void ClusterManager::Pulse() {
  ExcuseStandstill();
  bool changed = false;
  for (const auto& transition : members_.Tick(Now(this))) {
    const bool gone = transition.to == proto::MEMBER_DEAD || transition.to == proto::MEMBER_LEFT;
    // When it has joined again already, what is here of it is its new life's.
    const auto* now = members_.Find(transition.name);
    const bool back = now != nullptr && now->record.epoch() != transition.epoch;
    if (gone && !back) {
      placement_.NodeGone(transition.name);
      links_.Forget(transition.name);
      if (transition.kind == proto::MEMBER_GATEWAY) GatewayLost(transition.name);
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
  const auto update = feed_.Next(catalogue_, members_);
  for (const auto& [name, node] : links_.nodes()) send(node, update);
  for (const auto& [name, gateway] : links_.gateways()) send(gateway, update);
  Place();
}

void ClusterManager::Place() {
  const auto moves = placement_.Plan(catalogue_.functions().table(), members_, Now(this));
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
      placement_.Disowned(move.digest, move.node);
    }
  }
}

// Durable first: no state begins on a node that the store does not name. The adoptions that wait for it begin
// then.
PlacementTable::Homes ClusterManager::KeepHomes() {
  const auto homes = placement_.TakeNewHomes();
  for (const auto& [digest, name] : homes) {
    Commit(Catalogue::HomeBatch(digest, name),
           [this, digest = digest, name = name](const absl::Status& status) {
             if (!status.ok()) {
               placement_.Unbind(digest);
               placement_.AdoptFailed(digest, name, Now(this));
               return AdoptionEnded(
                   digest, absl::UnavailableError(absl::StrCat(
                               "node '", name, "' was to keep its state, and that could not be stored (",
                               status.message(), "): it is tried again by itself")));
             }
             const auto node = links_.Node(name);
             if (node && placement_.IsAsked(digest, name)) return Adopt(digest, name, node);
             AdoptionEnded(digest, absl::UnavailableError(absl::StrCat(
                                       "node '", name, "', which is to keep its state, was lost before it ",
                                       "was asked to adopt the model: it is served when the node is back")));
           });
  }
  const auto old = placement_.TakeOldHomes();
  if (!old.empty()) Commit(Catalogue::NoHomeBatch(old), [](const absl::Status&) {});
  return homes;
}

void ClusterManager::TellUnreachable() {
  std::set<std::string> now;
  for (const auto& [digest, why] : placement_.problems()) {
    if (!placement_.HasHome(digest) || !absl::IsUnavailable(why)) continue;
    now.insert(digest);
    if (!unreachable_.contains(digest)) Tell("manager", "state-unreachable", std::string(why.message()));
  }
  unreachable_ = std::move(now);
}

void ClusterManager::Adopt(const std::string& digest, const std::string& name,
                           const NodeControllerActor& node) {
  const auto* record = catalogue_.functions().table().UserOf(digest);
  if (record == nullptr) {
    placement_.Disowned(digest, name);
    return AdoptionEnded(digest,
                         absl::UnavailableError("its function was removed before a node had adopted it"));
  }
  const auto* member = members_.Find(name);
  const auto epoch = member == nullptr ? 0 : member->record.epoch();
  proto::AdoptModel adopt;
  *adopt.mutable_function() = *record;
  Call<proto::AdoptModelReply>(
      this, calls_, node, options_.adopt_timeout, std::move(adopt),
      [this, digest, name, epoch,
       function = record->key().name()](absl::StatusOr<proto::AdoptModelReply> reply) {
        // What a life that is over answers says nothing of the node's next one, nor that the node is there.
        if (!members_.CheckEpoch(name, epoch).ok()) return AdoptionLost(digest, name);
        auto status = reply.status();
        if (reply.ok()) status = StatusIn(*reply);
        if (status.ok()) {
          placement_.Adopted(digest, name);
          Tell(name, "model-adopted", absl::StrCat("function '", function, "'"));
        } else {
          placement_.AdoptFailed(digest, name, Now(this));
          Tell(name, "adoption-failed", absl::StrCat("function '", function, "': ", status.message()));
        }
        AdoptionEnded(digest, status);
      });
}

void ClusterManager::AdoptionLost(const std::string& digest, const std::string& name) {
  // The caller that waits hears of the copy that is being made instead, if there is one.
  if (placement_.BeingAdopted(digest)) return;
  AdoptionEnded(digest, absl::UnavailableError(absl::StrCat(
                            "node '", name, "' left the cluster before it had adopted the model")));
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
  if (tick.what() == kTakeBack) return TakeBackNow();
  After(this, options_.tick, tick);
  Pulse();
  TakeOver();
  Provision();
  CollectObjects();
}

absl::StatusOr<ClusterManagerActor> SpawnClusterManager(caf::actor_system& system, ManagerOptions options,
                                                        storage::MetadataStore& store,
                                                        ModelRepository& repository) {
  TROUPE_ASSIGN_OR_RETURN(auto catalogue, Catalogue::Load(store, options.new_cluster_id));
  if (options.on_recovered) {
    const auto runs = catalogue.runs().List("");
    const auto ended =
        std::count_if(runs.begin(), runs.end(), [](const auto* run) { return RunEnded(run->state()); });
    options.on_recovered({catalogue.functions().table().size(), catalogue.workflows().size(), runs.size(),
                          runs.size() - static_cast<std::size_t>(ended)});
  }
  return caf::actor_cast<ClusterManagerActor>(system.spawn<ClusterManager>(
      std::move(options), std::move(catalogue), std::ref(store), std::ref(repository)));
}

}  // namespace troupe::actors

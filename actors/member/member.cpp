#include "actors/member/member.hpp"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/deliver.hpp"
#include "actors/core/time.hpp"
#include "actors/interfaces/fault_target.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

namespace {

using MemberSelf =
    MemberActor::extend<Hears<proto::Tick>, caf::reacts_to<proto::PeerUp, caf::strong_actor_ptr>,
                        Hears<proto::PeerLost>, Hears<AllowFaults>,
                        Asks<proto::InjectFault, proto::AdminReply>>;
using FaultPromise = caf::typed_response_promise<proto::AdminReply>;
enum : std::uint32_t { kBeat = 1, kRejoin = 2, kMissing = 3 };
constexpr Duration kFirstMissing = std::chrono::seconds(1);
constexpr Duration kLongestMissing = std::chrono::minutes(1);  // between two that say so

// `Subject` is the actor that the member speaks for; the manager gets its handle with each join.
template <class Subject>
class Member : public MemberSelf::base {
 public:
  Member(caf::actor_config& config, MemberOptions options, Subject subject, FrontActor front,
         PeerDirectory& directory)
      : MemberSelf::base(config),
        options_(std::move(options)),
        subject_(std::move(subject)),
        front_(std::move(front)),
        directory_(directory),
        heartbeat_(options_.heartbeat),
        cluster_(options_.cluster) {}

  const char* name() const override { return "member"; }

  MemberSelf::behavior_type make_behavior() override {
    this->set_down_handler([this](caf::down_msg& down) { calls_.PeerDown(down.source); });
    Miss();
    directory_.Watch(options_.manager, this->system().template message_types<ClusterManagerActor>(),
                     caf::actor_cast<PeerWatcherActor>(this));
    return {
        [this](const proto::LeaveRequest&) { Leave(); },
        [this](const proto::JoinRequest& ask) { CatchUp(ask.known_revision()); },
        [this](const proto::Tick& tick) { OnTick(tick); },
        [this](const proto::PeerUp&, const caf::strong_actor_ptr& peer) {
          manager_ = caf::actor_cast<ClusterManagerActor>(peer);
          this->monitor(manager_);
          Join();
        },
        [this](const proto::PeerLost&) {
          manager_ = ClusterManagerActor();
          epoch_ = 0;
          ++life_;
          Say("manager-lost", absl::StrCat("the cluster manager at ", options_.manager, " is lost"));
          Miss();
        },
        [this](const AllowFaults& allow) { faults_ = allow.hook; },
        [this](const proto::InjectFault& fault) { return Inject(fault); },
    };
  }

  void on_exit() override {
    calls_.Clear();
    manager_ = ClusterManagerActor();
    subject_ = Subject();
    front_ = FrontActor();
  }

 private:
  // Asks the subject how it is, then joins with that.
  void Join() {
    if (!manager_) return;
    epoch_ = 0;
    Miss();
    const auto life = ++life_;
    proto::DescribeMember ask;
    ask.set_joining(true);
    Call<proto::MemberReport>(this, calls_, subject_, options_.join_timeout, std::move(ask),
                              [this, life](absl::StatusOr<proto::MemberReport> report) {
                                if (life != life_) return;
                                if (!report.ok())
                                  return After(this, options_.rejoin_after, MakeTick(kRejoin));
                                JoinAs(*report, life);
                              });
  }

  void JoinAs(const proto::MemberReport& report, std::uint64_t life) {
    proto::JoinRequest join;
    *join.mutable_member() = options_.record;
    *join.mutable_member()->mutable_gpus() = report.gpus();
    *join.mutable_adopted() = report.adopted();
    join.set_cluster(cluster_);
    const auto beside = [&](const auto&... handles) {
      return this->request(manager_, options_.join_timeout, std::move(join), subject_, handles...);
    };
    const auto then = [this, life, sent = Now(this)](auto asked) {
      asked.then(
          [this, life, sent](proto::JoinReply& reply) {
            if (life == life_) Joined(reply, sent);
          },
          [this, life](const caf::error&) {
            if (life == life_) After(this, options_.rejoin_after, MakeTick(kRejoin));
          });
    };
    if constexpr (std::is_same_v<Subject, RouterActor>) {
      if (front_) return then(beside(front_));
    }
    then(beside());
  }

  void Refused(const std::string& why) {
    if (why != refusal_)
      Say("join-refused", absl::StrCat("the cluster manager refuses this member: ", why, "; it tries on"));
    refusal_ = why;
    After(this, options_.rejoin_after, MakeTick(kRejoin));
  }

  void Joined(proto::JoinReply& reply, Time sent) {
    if (reply.code() != 0) return Refused(reply.message());
    refusal_.clear();
    missing_since_.reset();
    Say("cluster-joined", absl::StrCat("joined cluster ", reply.cluster(), " at ", options_.manager,
                                       ", epoch ", reply.epoch()));
    if (std::exchange(cluster_, reply.cluster()) != reply.cluster() && options_.keep_cluster)
      options_.keep_cluster(cluster_);
    options_.lease->Begin(sent, Duration(reply.lease_ns()));
    epoch_ = reply.epoch();
    sequence_ = 0;
    told_ = reminded_ = reply.state().revision();
    catching_up_ = false;
    if (reply.heartbeat_ns() > 0) heartbeat_ = Duration(reply.heartbeat_ns());
    proto::MemberJoined joined;
    joined.set_epoch(reply.epoch());
    joined.set_cluster(reply.cluster());
    *joined.mutable_state() = std::move(*reply.mutable_state());
    this->send(subject_, std::move(joined));
    if (std::exchange(missed_, false)) CatchUp(told_);
    After(this, heartbeat_, MakeTick(kBeat, life_));
  }

  void Say(const std::string& kind, const std::string& message) {
    if (options_.on_event) options_.on_event(kind, message);
  }
  // From now until it has joined, people are told that it has not.
  void Miss() {
    if (!options_.on_event || missing_since_) return;  // nothing would hear the timer
    missing_since_ = Now(this);
    missing_pause_ = kFirstMissing;
    ++missing_;
    MissOn();
  }
  void MissOn() {
    After(this, missing_pause_, MakeTick(kMissing, missing_));
    missing_pause_ = std::min(missing_pause_ * 2, kLongestMissing);
  }
  void TellMissing() {
    const auto since = absl::StrCat(" since ", FormatDuration(Now(this) - *missing_since_));
    if (!manager_) {
      Say("manager-missing", absl::StrCat("no cluster manager at ", options_.manager, since,
                                          ": check that it runs, and --manager; this member tries on"));
    } else if (refusal_.empty()) {
      Say("manager-missing", absl::StrCat("the cluster manager at ", options_.manager,
                                          " has not taken this member", since, "; it tries on"));
    }
    MissOn();
  }

  void OnTick(const proto::Tick& tick) {
    if (tick.what() == kMissing) {
      if (missing_since_ && tick.token() == missing_) TellMissing();
      return;
    }
    if (tick.what() == kRejoin) {
      if (epoch_ == 0) Join();
      return;
    }
    if (tick.token() != life_ || epoch_ == 0) return;
    After(this, heartbeat_, tick);
    Beat();
  }

  void Beat() {
    const auto life = life_;
    proto::DescribeMember ask;
    ask.set_events_heard(events_heard_);
    ask.set_usage_stored(usage_stored_);
    Call<proto::MemberReport>(this, calls_, subject_, heartbeat_ * 5, std::move(ask),
                              [this, life](absl::StatusOr<proto::MemberReport> report) {
                                // A subject that does not answer is not alive: then neither are we.
                                if (life == life_ && report.ok()) SendBeat(*report, life);
                              });
  }

  void SendBeat(const proto::MemberReport& report, std::uint64_t life) {
    proto::Heartbeat beat;
    beat.set_name(options_.record.name());
    beat.set_epoch(epoch_);
    beat.set_sequence(++sequence_);
    *beat.mutable_gpus() = report.gpus();
    *beat.mutable_load() = report.load();
    *beat.mutable_demand() = report.demand();
    beat.set_usage_ledger(report.usage_ledger());
    beat.set_unix_ns(report.unix_ns());
    if (report.has_usage()) *beat.mutable_usage() = report.usage();
    std::uint64_t told = 0;
    if (!telling_ && report.events_size() > 0) {
      *beat.mutable_events() = report.events();
      told = report.events().rbegin()->sequence();
      telling_ = true;
    }
    Call<proto::HeartbeatReply>(
        this, calls_, manager_, heartbeat_ * 10, std::move(beat),
        [this, life, told, sent = Now(this)](const absl::StatusOr<proto::HeartbeatReply>& reply) {
          if (told > 0) telling_ = false;
          if (reply.ok() && reply->known()) events_heard_ = std::max(events_heard_, told);
          if (life != life_ || !reply.ok()) return;
          if (!reply->known()) return Join();
          options_.lease->Heard(sent);
          usage_stored_ = reply->usage_stored();
          Remind(reply->revision());
        });
  }

  // `revision`: what the manager has told by now. What it had told a beat ago has come.
  void Remind(std::uint64_t revision) {
    if (told_ != reminded_) {
      proto::ClusterUpdate reminder;
      reminder.set_since(told_);
      reminder.set_revision(told_);
      this->send(subject_, std::move(reminder));
      reminded_ = told_;
    }
    told_ = revision;
  }

  // In the life that we have: nothing but the state is asked for.
  void CatchUp(std::uint64_t known) {
    // What came before the answer to a join, and went beyond what that answer will say.
    if (epoch_ == 0) missed_ = true;
    if (epoch_ == 0 || std::exchange(catching_up_, true)) return;
    proto::JoinRequest ask;
    *ask.mutable_member() = options_.record;
    ask.mutable_member()->set_epoch(epoch_);
    ask.set_known_revision(known);
    Call<proto::JoinReply>(
        this, calls_, manager_, options_.join_timeout, std::move(ask),
        [this, life = life_](absl::StatusOr<proto::JoinReply> reply) {
          if (life != life_) return;
          catching_up_ = false;
          reminded_ = 0;  // should something be missing still, the next beat says so
          if (reply.ok() && reply->code() == 0) this->send(subject_, std::move(*reply->mutable_state()));
        },
        subject_);
  }

  FaultPromise Inject(const proto::InjectFault& fault) {
    auto promise = this->template make_response_promise<proto::AdminReply>();
    auto status = CheckFaultsAllowed(faults_, options_.record.name());
    if (status.ok() && IsOfWorker(fault.kind()) && std::is_same_v<Subject, NodeControllerActor>) {
      Call<proto::AdminReply>(
          this, calls_, caf::actor_cast<FaultTargetActor>(subject_), options_.join_timeout, fault,
          [promise](absl::StatusOr<proto::AdminReply> reply) mutable {
            Deliver(promise, reply.ok() ? *std::move(reply) : FaultAnswer(reply.status()));
          });
      return promise;
    }
    if (status.ok()) status = faults_(fault);
    Deliver(promise, FaultAnswer(status));
    return promise;
  }

  void Leave() {
    if (manager_ && epoch_ != 0) {
      proto::LeaveRequest leave;
      leave.set_name(options_.record.name());
      leave.set_epoch(epoch_);
      this->send(manager_, std::move(leave));
    }
    this->quit();
  }

  const MemberOptions options_;
  FaultHook faults_;  // empty: not allowed here
  Subject subject_;
  FrontActor front_;  // of a gateway
  PeerDirectory& directory_;
  ClusterManagerActor manager_;
  PendingCalls calls_;
  Duration heartbeat_;
  std::string cluster_;
  std::string refusal_;                // the last one
  std::optional<Time> missing_since_;  // not joined; counted only with a listener
  Duration missing_pause_{};
  std::uint64_t missing_ = 0;  // how often that began: ticks of an earlier time are dropped
  std::uint64_t epoch_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t events_heard_ = 0;  // of the subject's events, by a manager
  std::uint64_t usage_stored_ = 0;  // of the subject's usage statements, by the manager
  std::uint64_t told_ = 0;          // revision that the manager had reached at the last beat
  std::uint64_t reminded_ = 0;      // the last that the subject was reminded of
  bool missed_ = false;             // the subject heard of changes before we had joined
  bool catching_up_ = false;        // the manager is asked for what the subject has missed
  bool telling_ = false;            // a heartbeat with events is on its way: no second one overtakes it
  std::uint64_t life_ = 0;  // of the session with one manager: answers from an earlier one are dropped
};

}  // namespace

MemberActor SpawnNodeMember(caf::actor_system& system, MemberOptions options, NodeControllerActor node,
                            PeerDirectory& directory) {
  return caf::actor_cast<MemberActor>(system.spawn<Member<NodeControllerActor>>(
      std::move(options), std::move(node), FrontActor(), std::ref(directory)));
}

MemberActor SpawnGatewayMember(caf::actor_system& system, MemberOptions options, RouterActor router,
                               FrontActor front, PeerDirectory& directory) {
  return caf::actor_cast<MemberActor>(system.spawn<Member<RouterActor>>(
      std::move(options), std::move(router), std::move(front), std::ref(directory)));
}

}  // namespace troupe::actors

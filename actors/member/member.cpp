#include "actors/member/member.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/deliver.hpp"
#include "actors/core/time.hpp"
#include "actors/interfaces/fault_target.hpp"
#include "actors/member/catch_up.hpp"
#include "actors/member/missing_notice.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

namespace {

using MemberSelf =
    MemberActor::extend<Hears<proto::Tick>, caf::reacts_to<proto::PeerUp, caf::strong_actor_ptr>,
                        Hears<proto::PeerLost>, Hears<AllowFaults>,
                        Asks<proto::InjectFault, proto::AdminReply>>;
using FaultPromise = caf::typed_response_promise<proto::AdminReply>;
enum : std::uint32_t { kBeat = 1, kRejoin = 2, kMissing = 3 };
// The session with one manager, as far as it has come.
struct ManagerSession {
  Duration heartbeat;
  std::string cluster;
  std::uint64_t epoch = 0;  // 0: not joined
  std::uint64_t sequence = 0;
  std::uint64_t life = 0;          // answers from an earlier one are dropped
  std::uint64_t usage_stored = 0;  // how many of the subject's usage statements a manager has stored
};

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
        session_{.heartbeat = options_.heartbeat, .cluster = options_.cluster} {}

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
          session_.epoch = 0;
          ++session_.life;
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
    session_.epoch = 0;
    Miss();
    const auto life = ++session_.life;
    proto::DescribeMember ask;
    ask.set_joining(true);
    Call<proto::MemberReport>(this, calls_, subject_, options_.join_timeout, std::move(ask),
                              [this, life](absl::StatusOr<proto::MemberReport> report) {
                                if (life != session_.life) return;
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
    join.set_cluster(session_.cluster);
    for (const auto& operation : this->system().message_types(subject_)) join.add_operations(operation);
    if (front_)
      for (const auto& operation : this->system().message_types(front_)) join.add_front_operations(operation);
    const auto beside = [&](const auto&... handles) {
      return this->request(manager_, options_.join_timeout, std::move(join), subject_, handles...);
    };
    const auto again = [this, life] {
      if (life == session_.life) After(this, options_.rejoin_after, MakeTick(kRejoin));
    };
    const auto then = [this, life, again, sent = Now(this)](auto asked) {
      asked.then(
          [this, life, again, sent](proto::JoinReply& reply) {
            if (life != session_.life) return;
            Complete(std::make_shared<proto::JoinReply>(std::move(reply)),
                     [this, again, sent](absl::StatusOr<Whole> whole) {
                       whole.ok() ? Joined(**whole, sent) : again();
                     });
          },
          [again](const caf::error&) { again(); });
    };
    if constexpr (std::is_same_v<Subject, RouterActor>) {
      if (front_) return then(beside(front_));
    }
    then(beside());
  }

  // A snapshot comes in parts (ClusterUpdate), of which no more than one is on its way. `then` gets the reply with all of
  // them, or why one did not come; or is not called, when this life of the session ends before.
  using Whole = std::shared_ptr<proto::JoinReply>;
  using Completed = std::function<void(absl::StatusOr<Whole>)>;
  void Complete(Whole reply, Completed then) {
    if (reply->code() != 0 || reply->state().more_after().empty()) return then(std::move(reply));
    auto ask = AskOf(reply->epoch());
    ask.set_functions_after(reply->state().more_after());
    Call<proto::JoinReply>(
        this, calls_, manager_, options_.join_timeout, std::move(ask),
        [this, life = session_.life, reply, then](absl::StatusOr<proto::JoinReply> part) {
          if (life != session_.life) return;
          if (part.ok() && part->code() != 0) part = absl::UnavailableError(part->message());
          if (!part.ok()) return then(part.status());
          for (auto& function : *part->mutable_state()->mutable_functions())
            *reply->mutable_state()->add_functions() = std::move(function);
          reply->mutable_state()->set_more_after(part->state().more_after());
          Complete(reply, then);
        },
        subject_);
  }
  // For what a member that has this epoch asks for.
  [[nodiscard]] proto::JoinRequest AskOf(std::uint64_t epoch) const {
    proto::JoinRequest ask;
    *ask.mutable_member() = options_.record;
    ask.mutable_member()->set_epoch(epoch);
    return ask;
  }

  void Refused(const std::string& why) {
    if (missing_.Refused(why))
      Say("join-refused", absl::StrCat("the cluster manager refuses this member: ", why, "; it tries on"));
    After(this, options_.rejoin_after, MakeTick(kRejoin));
  }

  void Joined(proto::JoinReply& reply, Time sent) {
    if (reply.code() != 0) return Refused(reply.message());
    missing_.Joined();
    Say("cluster-joined", absl::StrCat("joined cluster ", reply.cluster(), " at ", options_.manager,
                                       ", epoch ", reply.epoch()));
    if (std::exchange(session_.cluster, reply.cluster()) != reply.cluster() && options_.keep_cluster)
      options_.keep_cluster(session_.cluster);
    options_.lease->Begin(sent, Duration(reply.lease_ns()), Now(this));
    session_.epoch = reply.epoch();
    session_.sequence = 0;
    const bool missed = catch_up_.Joined(reply.state().revision());
    if (reply.heartbeat_ns() > 0) session_.heartbeat = Duration(reply.heartbeat_ns());
    proto::MemberJoined joined;
    joined.set_epoch(reply.epoch());
    joined.set_cluster(reply.cluster());
    *joined.mutable_state() = std::move(*reply.mutable_state());
    this->send(subject_, std::move(joined));
    if (missed) CatchUp(catch_up_.told());
    After(this, session_.heartbeat, MakeTick(kBeat, session_.life));
  }

  void Say(const std::string& kind, const std::string& message) {
    if (options_.on_event) options_.on_event(kind, message);
  }
  // From now until it has joined, people are told that it has not.
  void Miss() {
    if (!options_.on_event) return;  // nothing would hear the timer
    if (missing_.Begin(Now(this))) MissOn();
  }
  void MissOn() { After(this, missing_.pause(), MakeTick(kMissing, missing_.number())); }
  void TellMissing() {
    const auto text = missing_.Tell(Now(this), options_.manager, static_cast<bool>(manager_));
    if (!text.empty()) Say("manager-missing", text);
    MissOn();
  }

  void OnTick(const proto::Tick& tick) {
    if (tick.what() == kMissing) {
      if (missing_.IsDue(tick.token())) TellMissing();
      return;
    }
    if (tick.what() == kRejoin) {
      if (session_.epoch == 0) Join();
      return;
    }
    if (tick.token() != session_.life || session_.epoch == 0) return;
    After(this, session_.heartbeat, tick);
    Beat();
  }

  void Beat() {
    const auto life = session_.life;
    proto::DescribeMember ask;
    ask.set_events_heard(events_.heard());
    ask.set_usage_stored(session_.usage_stored);
    Call<proto::MemberReport>(this, calls_, subject_, session_.heartbeat * 5, std::move(ask),
                              [this, life](absl::StatusOr<proto::MemberReport> report) {
                                // A subject that does not answer is not alive: then neither are we.
                                if (life == session_.life && report.ok()) SendBeat(*report, life);
                              });
  }

  void SendBeat(const proto::MemberReport& report, std::uint64_t life) {
    proto::Heartbeat beat;
    beat.set_name(options_.record.name());
    beat.set_epoch(session_.epoch);
    beat.set_sequence(++session_.sequence);
    *beat.mutable_gpus() = report.gpus();
    *beat.mutable_load() = report.load();
    *beat.mutable_demand() = report.demand();
    *beat.mutable_function_demand() = report.function_demand();
    beat.set_usage_ledger(report.usage_ledger());
    beat.set_unix_ns(report.unix_ns());
    if (report.has_usage()) *beat.mutable_usage() = report.usage();
    std::uint64_t told = 0;
    if (events_.MayTell() && report.events_size() > 0) {
      *beat.mutable_events() = report.events();
      told = report.events().rbegin()->sequence();
      events_.Telling();
    }
    Call<proto::HeartbeatReply>(
        this, calls_, manager_, session_.heartbeat * 10, std::move(beat),
        [this, life, told, sent = Now(this)](const absl::StatusOr<proto::HeartbeatReply>& reply) {
          if (told > 0) events_.Told(told, reply.ok() && reply->known());
          if (life != session_.life || !reply.ok()) return;
          if (!reply->known()) return Join();
          options_.lease->Heard(sent);
          session_.usage_stored = reply->usage_stored();
          Remind(reply->revision());
        });
  }

  // `revision`: what the manager has told by now. What it had told a beat ago has come.
  void Remind(std::uint64_t revision) {
    const auto told = catch_up_.Told(revision);
    if (!told) return;
    proto::ClusterUpdate reminder;
    reminder.set_since(*told);
    reminder.set_revision(*told);
    this->send(subject_, std::move(reminder));
  }

  // In the life that we have: nothing but the state is asked for.
  void CatchUp(std::uint64_t known) {
    if (!catch_up_.Missed(session_.epoch != 0)) return;
    auto ask = AskOf(session_.epoch);
    ask.set_known_revision(known);
    Call<proto::JoinReply>(
        this, calls_, manager_, options_.join_timeout, std::move(ask),
        [this, life = session_.life](absl::StatusOr<proto::JoinReply> reply) {
          if (life != session_.life) return;
          if (!reply.ok()) return catch_up_.Asked();
          Complete(std::make_shared<proto::JoinReply>(*std::move(reply)),
                   [this](absl::StatusOr<Whole> whole) {
                     catch_up_.Asked();
                     if (whole.ok() && (*whole)->code() == 0)
                       this->send(subject_, std::move(*(*whole)->mutable_state()));
                   });
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
    if (manager_ && session_.epoch != 0) {
      proto::LeaveRequest leave;
      leave.set_name(options_.record.name());
      leave.set_epoch(session_.epoch);
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
  ManagerSession session_;
  MissingNotice missing_;
  CatchUpState catch_up_;
  EventsHeard events_;
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

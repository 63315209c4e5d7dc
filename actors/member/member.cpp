#include "actors/member/member.hpp"

#include <algorithm>
#include <utility>

#include "actors/core/call.hpp"
#include "actors/core/time.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

namespace {

using MemberSelf =
    MemberActor::extend<Hears<proto::Tick>, caf::reacts_to<proto::PeerUp, caf::strong_actor_ptr>,
                        Hears<proto::PeerLost>>;
enum : std::uint32_t { kBeat = 1, kRejoin = 2 };

// `Subject` is the actor that the member speaks for; the manager gets its handle with each join.
template <class Subject>
class Member : public MemberSelf::base {
 public:
  Member(caf::actor_config& config, MemberOptions options, Subject subject, PeerDirectory& directory)
      : MemberSelf::base(config),
        options_(std::move(options)),
        subject_(std::move(subject)),
        directory_(directory),
        heartbeat_(options_.heartbeat) {}

  const char* name() const override { return "member"; }

  MemberSelf::behavior_type make_behavior() override {
    this->set_down_handler([this](caf::down_msg& down) { calls_.PeerDown(down.source); });
    directory_.Watch(options_.manager, this->system().template message_types<ClusterManagerActor>(),
                     caf::actor_cast<PeerWatcherActor>(this));
    return {
        [this](const proto::LeaveRequest&) { Leave(); },
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
        },
    };
  }

  void on_exit() override {
    manager_ = ClusterManagerActor();
    subject_ = Subject();
  }

 private:
  // Asks the subject how it is, then joins with that.
  void Join() {
    if (!manager_) return;
    epoch_ = 0;
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
    this->request(manager_, options_.join_timeout, std::move(join), subject_)
        .then(
            [this, life](proto::JoinReply& reply) {
              if (life == life_) Joined(reply);
            },
            [this, life](const caf::error&) {
              if (life == life_) After(this, options_.rejoin_after, MakeTick(kRejoin));
            });
  }

  void Joined(proto::JoinReply& reply) {
    if (reply.code() != 0) return After(this, options_.rejoin_after, MakeTick(kRejoin));
    epoch_ = reply.epoch();
    sequence_ = 0;
    if (reply.heartbeat_ns() > 0) heartbeat_ = Duration(reply.heartbeat_ns());
    proto::MemberJoined joined;
    joined.set_epoch(reply.epoch());
    joined.set_cluster(reply.cluster());
    *joined.mutable_state() = std::move(*reply.mutable_state());
    this->send(subject_, std::move(joined));
    auto tick = MakeTick(kBeat);
    tick.set_token(life_);
    After(this, heartbeat_, tick);
  }

  void OnTick(const proto::Tick& tick) {
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
    std::uint64_t told = 0;
    if (!telling_ && report.events_size() > 0) {
      *beat.mutable_events() = report.events();
      told = report.events().rbegin()->sequence();
      telling_ = true;
    }
    Call<proto::HeartbeatReply>(this, calls_, manager_, heartbeat_ * 10, std::move(beat),
                                [this, life, told](const absl::StatusOr<proto::HeartbeatReply>& reply) {
                                  if (told > 0) telling_ = false;
                                  if (reply.ok() && reply->known())
                                    events_heard_ = std::max(events_heard_, told);
                                  if (life == life_ && reply.ok() && !reply->known()) Join();
                                });
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
  Subject subject_;
  PeerDirectory& directory_;
  ClusterManagerActor manager_;
  PendingCalls calls_;
  Duration heartbeat_;
  std::uint64_t epoch_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t events_heard_ = 0;  // of the subject's events, by a manager
  bool telling_ = false;            // a heartbeat with events is on its way: no second one overtakes it
  std::uint64_t life_ = 0;          // of the tie to one manager: answers from an earlier one are dropped
};

}  // namespace

MemberActor SpawnNodeMember(caf::actor_system& system, MemberOptions options, NodeControllerActor node,
                            PeerDirectory& directory) {
  return caf::actor_cast<MemberActor>(
      system.spawn<Member<NodeControllerActor>>(std::move(options), std::move(node), std::ref(directory)));
}

MemberActor SpawnGatewayMember(caf::actor_system& system, MemberOptions options, RouterActor router,
                               PeerDirectory& directory) {
  return caf::actor_cast<MemberActor>(
      system.spawn<Member<RouterActor>>(std::move(options), std::move(router), std::ref(directory)));
}

}  // namespace troupe::actors

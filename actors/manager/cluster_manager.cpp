// The cluster manager: messages become events of cluster::Cluster, and its effects become messages, commits
// and timers.
#include "actors/manager/cluster_manager.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/event_queue.hpp"
#include "actors/core/fault_hook.hpp"
#include "actors/core/open_promises.hpp"
#include "actors/manager/audit_lines.hpp"
#include "actors/manager/member_links.hpp"
#include "actors/manager/node_questions.hpp"
#include "actors/manager/object_transfers.hpp"
#include "actors/manager/provision_orders.hpp"
#include "actors/manager/runner_handles.hpp"
#include "actors/manager/stored_catalogue.hpp"
#include "actors/peers/earlier_peer.hpp"
#include "actors/peers/message_rights.hpp"
#include "cluster/cluster.hpp"
#include "security/api_keys.hpp"

namespace troupe::actors {

namespace {

using ManagerSelf =
    ClusterManagerActor::extend<Hears<proto::Continue>, Hears<proto::Tick>, Hears<AllowFaults>>;
template <class Reply>
using Promise = caf::typed_response_promise<Reply>;

constexpr char kMyself[] = "manager";

ManagerOptions Complete(ManagerOptions options) {
  options.provisions = options.provisioner != nullptr;
  options.audited = options.audit != nullptr;
  return options;
}

class ClusterManager : public ManagerSelf::base {
 public:
  ClusterManager(caf::actor_config& config, ManagerOptions options, cluster::Catalogue catalogue,
                 storage::MetadataStore& store, ModelRepository& repository)
      : ManagerSelf::base(config),
        options_(Complete(std::move(options))),
        cluster_(options_, std::move(catalogue)),
        store_(store),
        objects_(repository, continuations_, options_.release_after) {}
  const char* name() const override { return "cluster_manager"; }

  behavior_type make_behavior() override {
    set_down_handler([this](caf::down_msg& down) { Down(down); });
    On(cluster::Started{FindLacking(cluster_.machine().catalogue(), options_.lacking)});
    return {
        [this](const proto::JoinRequest& join, const NodeControllerActor& node) {
          return Join(join, node, {.node = node});
        },
        [this](const proto::JoinRequest& join, const RouterActor& router) {
          return Join(join, router, {.router = router});
        },
        [this](const proto::JoinRequest& join, const RouterActor& router, const FrontActor& front) {
          return Join(join, router, {.router = router, .front = front});
        },
        [this](proto::Heartbeat& heartbeat) { return Hear(heartbeat); },
        [this](const proto::LeaveRequest& leave) {
          if (CheckMemberName(*Sender(), leave.name()).ok()) On(cluster::LeaveAsked{leave});
        },
        [this](proto::AdminRequest& request) { return Admin(request); },
        [this](proto::UploadChunk& chunk) { return objects_.Receive(this, chunk); },
        [this](const proto::FetchObject& part) { return objects_.Fetch(this, part); },
        [this](const proto::ReleaseFetched& release) { objects_.Release(release.release()); },
        [this](const proto::LocateModel& locate) {
          return Ask<proto::ModelPlaces>(cluster::PlacesAsked{0, locate.model_digest(), locate.node()});
        },
        [this](const proto::DigestRange& range) { return objects_.Digest(this, range); },
        [this](proto::StartRun& command, const WorkflowRunActor& run) { return Start(command, run); },
        [this](proto::StartRun& command) { return Start(command, WorkflowRunActor()); },
        [this](proto::CommitStep& command) {
          return Ask<proto::RunReply>(cluster::StepAsked{0, std::move(command)});
        },
        [this](proto::FinishRun& command) {
          return Ask<proto::RunReply>(cluster::FinishAsked{0, std::move(command)});
        },
        [this](const proto::StoreBlob& blob) { return objects_.Keep(this, blob); },
        [this](const proto::Continue& message) { continuations_.Resume(message); },
        [this](const proto::Tick& tick) {
          if (tick.what() == ObjectTransfers::kReleaseTick) return objects_.Release(tick.token());
          On(cluster::TimerFired{static_cast<cluster::Timer>(tick.what())});
        },
        [this](const AllowFaults& allow) { faults_ = allow.hook; },
    };
  }

  void on_exit() override {
    calls_.Clear();
    continuations_.Clear();
    links_.Clear();
    runners_.Clear();
    open_.Clear();  // promises hold this actor
  }

 private:
  // --- messages to events ---
  void On(cluster::Event event) {
    cluster_.On(
        std::move(event),
        [this](cluster::Effect& effect) {
          CarryOutBy(questions_, effect, [this](auto& wanted) { Do(wanted); });
        },
        [this] { return Now(this); }, [this] { return options_.unix_now(); });
  }

  // The cluster answers now or later, by the number of the question.
  template <class Reply, class Question>
  Promise<Reply> Ask(Question question) {
    auto promise = make_response_promise<Reply>();
    question.ask = open_.Open(promise);
    On(std::move(question));
    return promise;
  }

  // The process that sent the message being handled. A promise takes the sender away: ask before making one.
  [[nodiscard]] std::shared_ptr<const Peer> Sender() { return PeerOf(options_.identities, current_sender()); }

  // From now on the member's actor is asked nothing that its release does not know, if it tells what it knows.
  template <class Handle>
  void AskForWhatItOffers(Handle& member, const google::protobuf::RepeatedPtrField<std::string>& operations) {
    if (!member || operations.empty()) return;
    const OperationNames offered(operations.begin(), operations.end());
    member = caf::actor_cast<Handle>(AskedForWhatItOffers(caf::actor_cast<caf::strong_actor_ptr>(member),
                                                          offered, system().message_types(member)));
  }

  template <class Handle>
  Promise<proto::JoinReply> Join(const proto::JoinRequest& join, const Handle& member,
                                 MemberHandles joining) {
    joining.target = caf::actor_cast<FaultTargetActor>(current_sender());
    const auto sender = Sender();
    cluster::JoinAsked asked{.join = join, .gateway = !joining.node};
    asked.allowed = CheckMember(*sender, join.member().name(), join.member().kind());
    if (asked.allowed.ok() && joining.target && member.node() != joining.target.node())
      asked.allowed =
          absl::InvalidArgumentError("the member's actors are in another process than the member");
    asked.daemon = caf::to_string(caf::actor_cast<caf::actor_addr>(member));
    if (!sender->name.empty()) asked.certificate = sender->ToString();
    if (joining.front && asked.allowed.ok()) asked.front = runners_.ProcessOf(joining.front.node());
    if (asked.allowed.ok()) {
      AskForWhatItOffers(joining.node, join.operations());
      AskForWhatItOffers(joining.router, join.operations());
      AskForWhatItOffers(joining.front, join.front_operations());
    }
    asking_.member = std::move(joining);
    auto promise = Ask<proto::JoinReply>(std::move(asked));
    asking_ = {};
    return promise;
  }

  Promise<proto::HeartbeatReply> Hear(proto::Heartbeat& heartbeat) {
    if (CheckMemberName(*Sender(), heartbeat.name()).ok())
      return Ask<proto::HeartbeatReply>(cluster::HeartbeatHeard{0, std::move(heartbeat)});
    auto promise = make_response_promise<proto::HeartbeatReply>();
    promise.deliver(proto::HeartbeatReply());  // it joins, and hears why not
    return promise;
  }

  void Down(const caf::down_msg& down) {
    calls_.PeerDown(down.source);
    if (const auto runner = runners_.KnownNumberOf(down.source); runner.exists()) {
      runners_.Remove(runner);
      On(cluster::RunnerLost{runner});
    }
    if (auto gone = links_.Remove(down.source); !gone.name.empty())
      On(cluster::MemberLost{std::move(gone.name), gone.gateway});
  }

  Promise<proto::RunReply> Start(proto::StartRun& command, const WorkflowRunActor& run) {
    asking_.run = run;
    auto promise = Ask<proto::RunReply>(
        cluster::StartAsked{0, std::move(command), runners_.NumberOf(caf::actor_cast<caf::actor_addr>(run))});
    asking_ = {};
    return promise;
  }

  Promise<proto::AdminReply> Admin(proto::AdminRequest& request) {
    const auto sender = Sender();
    cluster::AdminAsked asked;
    asked.allowed = CheckAdmin(request, *sender);
    if (options_.audit != nullptr) {
      asked.asker = AskerOf(request, *sender);
      asked.room = options_.audit->CanTake();
    }
    asked.request = std::move(request);
    return Ask<proto::AdminReply>(std::move(asked));
  }
  // What a gateway says of its client is believed: it has asked for the key. Of others only what the
  // connection says counts.
  cluster::Asker AskerOf(const proto::AdminRequest& request, const Peer& peer) {
    const auto& sender = current_sender();
    const auto process = sender == nullptr ? node() : sender->node();
    if (process == node() && request.has_caller()) return actors::AskerOf(request.caller());
    for (const auto& [name, gateway] : links_.gateways())
      if (links_.ProcessOf(name) == process) return actors::AskerOf(request.caller(), name);
    return actors::AskerOf(CallerOf(peer));
  }

  // --- effects to messages ---
  template <class Reply>
  void Do(cluster::Answer<Reply>& answer) {
    open_.Deliver(answer.ask, std::move(answer.reply));
  }
  void Do(cluster::DropAsk& drop) { open_.Drop<proto::RunReply>(drop.ask); }
  void Do(cluster::ShowImports& show) { open_.Deliver(show.ask, objects_.Imports(show.onnx_digest)); }

  void Do(cluster::Commit& commit) {
    store_.Commit(BatchOf(commit.changes),
                  continuations_.MakeStatus(this, [this, ticket = commit.ticket](const auto& status) {
                    On(cluster::Committed{ticket, status});
                  }));
  }
  void Do(cluster::WriteAudit& write) {
    options_.audit->Append(LineOf(std::move(write.entry), options_.unix_now()),
                           continuations_.MakeStatus(this, [this, ticket = write.ticket](const auto& status) {
                             On(cluster::AuditWritten{ticket, status});
                           }));
  }

  void Do(cluster::Connect& connect) {
    links_.Add(connect.name, asking_.member);
    asking_.member.node ? monitor(asking_.member.node) : monitor(asking_.member.router);
  }
  void Do(cluster::Disconnect& disconnect) { links_.Forget(disconnect.name); }
  void Do(cluster::TellMembers& tell) {
    for (const auto& [name, node] : links_.nodes()) send(node, tell.update);
    for (const auto& [name, gateway] : links_.gateways()) send(gateway, tell.update);
  }
  void Do(cluster::KillGpu& kill) { send(links_.Node(kill.kill.node()), std::move(kill.kill)); }
  void Do(cluster::DescribeNode& describe) {
    Call<proto::NodeDescription>(
        this, calls_, links_.Node(describe.node), options_.ask_timeout, proto::DescribeNode(),
        [this, inquiry = describe.inquiry](absl::StatusOr<proto::NodeDescription> description) {
          On(cluster::NodeDescribed{inquiry, std::move(description)});
        });
  }
  void Do(cluster::DescribeGateway& describe) {
    Call<proto::GatewayDescription>(
        this, calls_, links_.Front(describe.gateway), options_.ask_timeout, std::move(describe.ask),
        [this, inquiry = describe.inquiry](absl::StatusOr<proto::GatewayDescription> description) {
          On(cluster::GatewayDescribed{inquiry, std::move(description)});
        });
  }
  // A manager that does not allow faults passes none on, whatever its members allow.
  void Do(cluster::CarryFault& carry) {
    const auto& fault = carry.fault;
    const auto answer = [this, ask = carry.ask, fault](absl::StatusOr<proto::AdminReply> reply) {
      On(cluster::FaultCarried{ask, fault, reply.ok() ? *std::move(reply) : FaultAnswer(reply.status())});
    };
    if (auto status = CheckFaultsAllowed(faults_, kMyself); !status.ok()) return answer(status);
    if (const auto member = links_.FaultTarget(fault.member()))
      return Call<proto::AdminReply>(this, calls_, member, options_.ask_timeout, fault, answer);
    if (fault.member() == kMyself) return answer(FaultAnswer(faults_(fault)));
    answer(absl::NotFoundError(absl::StrCat("there is no member '", fault.member(),
                                            "' that is connected; 'manager' is the manager")));
  }

  void Do(cluster::WatchRunner& watch) {
    runners_.Keep(watch.runner, asking_.run);
    monitor(asking_.run);
  }
  void Do(cluster::CancelRunner& cancel) {
    if (const auto runner = runners_.Find(cancel.runner)) send(runner, proto::CancelInfer());
  }
  void Do(cluster::TellTaken& tell) {
    if (const auto runner = runners_.Find(tell.runner)) send(runner, std::move(tell.taken));
  }
  void Do(cluster::GoOn& go_on) {
    if (const auto front = links_.Front(go_on.gateway)) send(front, std::move(go_on.message));
  }

  void Do(cluster::ImportModel& import) {
    objects_.Import(this, {import.onnx_digest, import.precision, import.stages}, import.client,
                    [this, ask = import.ask](auto imported) {
                      On(cluster::ModelImported{ask, std::move(imported)});
                    });
  }
  void Do(cluster::MakeKey& make) {
    cluster::KeyMade made{make.ask, std::move(make.key), security::NewApiKey(), {}};
    if (made.text.ok()) made.key.set_sha256(security::DigestOfKey(*made.text));
    made.valid = security::CheckKey(made.key);
    On(std::move(made));
  }
  void Do(cluster::OrderMachine& order) {
    options_.provisioner->Carry(
        OrderOf(order.action, order.status),
        continuations_.MakeStatus(this, [this, action = order.action](const auto& status) {
          On(cluster::MachineOrdered{action, status});
        }));
  }
  void Do(cluster::CollectObjects& collect) {
    objects_.Collect(this, std::move(collect.kept), collect.unused_for,
                     [this](auto removed) { On(cluster::ObjectsCollected{std::move(removed)}); });
  }
  void Do(cluster::Note& note) {
    if (options_.on_event) options_.on_event(note.event);
  }
  void Do(cluster::WakeMe& wake) {
    After(this, wake.after, MakeTick(static_cast<std::uint32_t>(wake.timer)));
  }

  const ManagerOptions options_;
  EventQueue<cluster::Cluster, cluster::Event> cluster_;
  storage::MetadataStore& store_;
  FaultHook faults_;  // into this process; empty: no faults in this cluster
  MemberLinks links_;
  RunnerHandles runners_;
  struct {
    MemberHandles member;
    WorkflowRunActor run;
  } asking_;  // in the message that is being handled
  PendingCalls calls_;
  NodeQuestions<ManagerSelf::base> questions_{this, links_, calls_, options_,
                                              [this](cluster::Event event) { On(std::move(event)); }};
  Continuations continuations_;
  ObjectTransfers objects_;
  OpenPromises<proto::JoinReply, proto::HeartbeatReply, proto::AdminReply, proto::RunReply,
               proto::ModelPlaces>
      open_;
};

}  // namespace

absl::StatusOr<ClusterManagerActor> SpawnClusterManager(caf::actor_system& system, ManagerOptions options,
                                                        storage::MetadataStore& store,
                                                        ModelRepository& repository) {
  TROUPE_ASSIGN_OR_RETURN(auto catalogue, LoadCatalogue(store, options.new_cluster_id));
  if (options.on_recovered) options.on_recovered(CountRecovered(catalogue));
  return caf::actor_cast<ClusterManagerActor>(system.spawn<ClusterManager>(
      std::move(options), std::move(catalogue), std::ref(store), std::ref(repository)));
}

}  // namespace troupe::actors

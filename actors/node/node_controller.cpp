// The node controller: messages become events of node::Node, and its effects become messages, files and
// timers.
#include "actors/node/node_controller.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/continuations.hpp"
#include "actors/core/event_queue.hpp"
#include "actors/core/fault_hook.hpp"
#include "actors/core/open_promises.hpp"
#include "actors/core/time.hpp"
#include "actors/member/member_session.hpp"
#include "actors/node/image_orders.hpp"
#include "actors/node/worker_orders.hpp"
#include "base/status.hpp"
#include "base/wire_status.hpp"
#include "node/node.hpp"
#include "node/runtimes/worker_orders.hpp"
#include "proto/element_size.hpp"

namespace troupe::actors {

namespace {

using ControllerSelf = NodeControllerActor::extend<Hears<proto::Tick>, Hears<proto::Continue>,
                                                   Asks<proto::InjectFault, proto::AdminReply>>;
template <class Reply>
using Promise = caf::typed_response_promise<Reply>;

NodeOptions Complete(NodeOptions options) {
  options.state_memory = options.states.capacity;
  options.keeps_profiles = options.save_profiles != nullptr;
  options.keeps_adopted = options.save_adopted != nullptr;
  options.meters = static_cast<bool>(options.metering);
  return options;
}

std::optional<proto::FaultOrder::Kind> OrderOf(proto::InjectFault::Kind kind) {
  switch (kind) {
    case proto::InjectFault::KILL_WORKER:
      return proto::FaultOrder::CRASH;
    case proto::InjectFault::HANG_WORKER:
      return proto::FaultOrder::HANG;
    case proto::InjectFault::STALL_LINK:
      return proto::FaultOrder::STALL_LINK;
    default:
      return std::nullopt;
  }
}

class NodeController : public ControllerSelf::base {
 public:
  NodeController(caf::actor_config& config, NodeOptions options, node::SchedulerPolicies policies,
                 CacheActor cache)
      : ControllerSelf::base(config),
        options_(Complete(std::move(options))),
        cache_(std::move(cache)),
        node_(options_, policies),
        inputs_(options_.channel, options_.remote_inputs),
        images_(
            this, cache_, calls_, options_.states, [this](node::Event event) { On(std::move(event)); },
            [this](node::Ask ask, proto::FetchReply part) { open_.Deliver(ask, std::move(part)); }) {}
  const char* name() const override { return "node_controller"; }

  behavior_type make_behavior() override {
    set_down_handler([this](caf::down_msg& down) { Down(down); });
    for (std::uint32_t i = 0; i < node_.machine().runtimes(); ++i) {
      executors_.push_back(SpawnExecutor(system(), i, options_.Label(i), options_.make_link(i),
                                         caf::actor_cast<ExecutorListener>(this), options_.executor));
      link_to(executors_.back());  // neither is of use without the other
    }
    On(node::Started());
    return {
        [this](proto::SubmitRequest& request) { return Submit(request); },
        [this](const proto::CancelSubmit& cancel) { On(node::RequestCancelled{node::IdOf(cancel.id())}); },
        [this](const proto::ReleaseRequest& release) { On(node::OutputsRead{node::IdOf(release.id())}); },
        [this](proto::ExportTensors& wish) {
          return Ask<proto::ExportedTensors>(node::ExportAsked{0, std::move(wish)});
        },
        [this](const proto::RouterHello& hello, const CreditSinkActor& router) {
          return Hello(hello, router);
        },
        [this](proto::AdoptModel& adopt) {
          node::AdoptionAsked asked{0, std::move(*adopt.mutable_function()), {}, adopt.node_epoch()};
          if (adopt.has_replicas()) asked.replicas = std::move(*adopt.mutable_replicas());
          return Ask<proto::AdoptModelReply>(std::move(asked));
        },
        [this](const proto::DisownModel& disown) { On(node::ModelDisowned{disown.model_digest()}); },
        [this](proto::GiveUpStates& wish) {
          return Ask<proto::GivenUpStates>(node::StatesWanted{0, std::move(wish)});
        },
        [this](proto::TakeOverStates& wish) {
          return Ask<proto::TakenOverStates>(node::StatesOffered{0, std::move(wish)});
        },
        [this](const proto::ForgetStates& forget) {
          On(node::StatesElsewhere{forget.model_digest(), forget.term()});
        },
        [this](proto::StateReplicas& named) {
          return Ask<proto::ReplicasInStep>(node::ReplicasNamed{0, std::move(named)});
        },
        [this](proto::CopyImage& copy) {
          return Ask<proto::CopiedImage>(node::CopyOffered{0, std::move(copy)});
        },
        [this](proto::FetchImage& part) {
          return Ask<proto::FetchReply>(node::ImageAsked{0, std::move(part)});
        },
        [this](const proto::DrainNode& drain) {
          return Ask<proto::DrainReply>(node::DrainAsked{0, drain.drain()});
        },
        [this](const proto::DescribeNode&) { return Describe(); },
        [this](proto::RunTrial& trial) {
          return Ask<proto::TrialEnded>(node::TrialAsked{0, std::move(trial)});
        },
        [this](const proto::StopTrial& stop) { On(node::TrialStopped{stop.experiment()}); },
        [this](const proto::KillGpu& kill) { On(node::KillAsked{kill.gpu()}); },
        [this](const proto::InjectFault& fault) { return Inject(fault); },
        [this](proto::ClusterUpdate& update) { On(node::ClusterChanged{std::move(update)}); },
        [this](proto::MemberJoined& joined) {
          On(node::Joined{joined.epoch(), std::move(*joined.mutable_state()), options_.lease->Lapsed()});
        },
        [this](const proto::DescribeMember& ask) {
          if (ask.joining()) session_.AskedBy(current_sender());
          return Ask<proto::MemberReport>(node::ReportAsked{0, ask});
        },
        [this](proto::FetchObject& part) { return delegate(cache_, std::move(part)); },
        [this](proto::ReleaseFetched& release) { send(cache_, std::move(release)); },
        [this](proto::ExecutorReport& report) { On(node::WorkerReported{std::move(report)}); },
        [this](const proto::Tick& tick) { On(node::TimerFired{static_cast<node::Timer>(tick.what())}); },
        [this](const proto::Continue& message) {
          inputs_.Resume(message);
          images_.Resume(message);
          files_.Resume(message);
        },
    };
  }

  void on_exit() override {
    calls_.Clear();
    On(node::Stopping());
    for (auto& executor : executors_) send_exit(executor, caf::exit_reason::user_shutdown);
    executors_.clear();
    open_.Clear();
    inputs_.Clear();
    images_.Clear();
    files_.Clear();
    routers_.clear();
    cache_ = nullptr;
  }

 private:
  // --- messages to events ---
  void On(node::Event event) {
    node_.On(
        std::move(event),
        [this](node::Effect& effect) { CarryOutBy(images_, effect, [this](auto& wanted) { Do(wanted); }); },
        [this] { return Now(this); });
  }

  // The node answers now or later, by the number of the question.
  template <class Reply, class Question>
  Promise<Reply> Ask(Question question) {
    auto promise = make_response_promise<Reply>();
    question.ask = open_.Open(promise);
    On(std::move(question));
    return promise;
  }

  Promise<proto::SubmitReply> Submit(proto::SubmitRequest& message) {
    const auto now = Now(this);
    node::RequestArrived arrived;
    if (options_.lease->Over(now)) arrived.lease_over = options_.lease->Why(options_.name, now);
    if (options_.lease->ExclusiveOver(now))
      arrived.exclusive_lease_over = options_.lease->Why(options_.name, now);
    arrived.inputs_elsewhere = inputs_.Needed(message.inputs());
    arrived.message = std::move(message);
    return Ask<proto::SubmitReply>(std::move(arrived));
  }

  Promise<proto::CreditGrant> Hello(const proto::RouterHello& hello, const CreditSinkActor& router) {
    auto& known = routers_[hello.router()];
    if (!known) monitor(router);
    known = router;
    return Ask<proto::CreditGrant>(node::RouterSaidHello{0, hello});
  }

  void Down(const caf::down_msg& down) {
    const auto it = std::find_if(routers_.begin(), routers_.end(), [&](const auto& router) {
      return caf::actor_cast<caf::actor_addr>(router.second) == down.source;
    });
    if (it == routers_.end()) return;
    const auto id = it->first;
    routers_.erase(it);
    On(node::RouterLost{id});
  }

  Promise<proto::AdminReply> Inject(const proto::InjectFault& fault) {
    if (const auto kind = OrderOf(fault.kind()))
      return Ask<proto::AdminReply>(node::FaultAsked{0, fault.gpu(), *kind});
    auto promise = make_response_promise<proto::AdminReply>();
    promise.deliver(FaultAnswer(absl::InvalidArgumentError(
        absl::StrCat(FaultName(fault.kind()), " is not a fault of a GPU worker"))));
    return promise;
  }

  // What the node knows, and what its workers say of themselves.
  Promise<proto::NodeDescription> Describe() {
    auto promise = make_response_promise<proto::NodeDescription>();
    auto gathered = std::make_shared<proto::NodeDescription>(node_.machine().Describe(Now(this)));
    auto open = std::make_shared<std::size_t>(executors_.size());
    if (executors_.empty()) promise.deliver(*gathered);
    for (std::uint32_t i = 0; i < executors_.size(); ++i) {
      proto::WorkerOrder order;
      order.mutable_describe();
      order.set_sequence(node_.machine().NumberOrder());
      Call<proto::WorkerOutcome>(
          this, calls_, executors_[i], options_.describe_timeout, std::move(order),
          [this, promise, gathered, open, i](absl::StatusOr<proto::WorkerOutcome> outcome) mutable {
            if (outcome.ok())
              node_.machine().AddWorker(i, std::move(*outcome->mutable_description()), *gathered, Now(this));
            if (--*open == 0) promise.deliver(*gathered);
          });
    }
    return promise;
  }

  // --- effects to messages ---
  template <class Reply>
  void Do(node::Answer<Reply>& answer) {
    open_.Deliver(answer.ask, std::move(answer.reply));
  }
  void Do(node::Answer<absl::Status>& answer) { open_.Deliver(answer.ask, FaultAnswer(answer.reply)); }
  void Do(node::TellRouter& tell) { send(routers_.at(tell.router), std::move(tell.grant)); }

  // An executor answers every order, also when its worker dies; its own end is the node's.
  void Do(node::GiveOrder& give) {
    const auto sequence = give.order.sequence();
    request(executors_[give.gpu], caf::infinite, std::move(give.order))
        .then([this](proto::WorkerOutcome& outcome) { On(node::OrderAnswered{std::move(outcome)}); },
              [this, sequence](const caf::error& error) {
                On(node::OrderAnswered{Refusal(sequence, absl::UnavailableError(caf::to_string(error)))});
              });
  }
  void Do(node::KillRuntime& kill) {
    proto::KillWorker message;
    message.set_reason(kill.reason);
    send(executors_[kill.gpu], std::move(message));
  }
  void Do(node::AssignRuntime& assign) { send(executors_[assign.gpu], std::move(assign.assign)); }

  void Do(node::FetchCopy& fetch) {
    Call<proto::HostModel>(this, calls_, cache_, options_.adopt_timeout, std::move(fetch.fetch),
                           [this, copy = fetch.copy](const absl::StatusOr<proto::HostModel>& host) {
                             node::CopyFetched event{copy, StatusIn(host), {}};
                             if (host.ok()) event.wrong = {host->wrong().begin(), host->wrong().end()};
                             On(std::move(event));
                           });
  }
  void Do(node::PlaceCopy& place) {
    const auto placed = [this, copy = place.copy,
                         began = Now(this)](const absl::StatusOr<proto::HostModel>& host) {
      node::CopyPlaced event{.copy = copy, .took = Now(this) - began};
      const auto status = StatusIn(host);
      status.ok() ? event.host = host->copy() : event.host = status;
      On(std::move(event));
    };
    Call<proto::HostModel>(this, calls_, cache_, options_.adopt_timeout, std::move(place.place), placed);
  }
  void Do(node::DropCopy& drop) { send(cache_, std::move(drop.drop)); }

  void Do(node::BringInputs& bring) {
    inputs_.Bring(this, bring.id, bring.inputs, bring.expiry,
                  [this, id = bring.id](absl::StatusOr<node::Tensors> here) {
                    On(node::InputsArrived{id, std::move(here)});
                  });
  }
  void Do(node::ForgetInputs& forget) { inputs_.Forget(forget.id); }
  void Do(node::PlaceZeros& place) {
    auto placed = Zeros(place.inputs);
    if (!placed.ok()) Free(place.inputs);
    On(node::InputsArrived{place.id, std::move(placed)});
  }
  void Do(node::FreeZeros& free) { Free(free.inputs); }
  // The inputs without data get some, in the arena.
  absl::StatusOr<node::Tensors> Zeros(node::Tensors& inputs) {
    if (options_.channel == nullptr) return absl::UnavailableError("this node has no arena");
    for (auto& input : inputs) {
      if (input.data().has_inlined()) continue;
      std::size_t bytes = proto::ElementSize(input.spec().type());
      for (const auto size : input.spec().shape()) bytes *= static_cast<std::size_t>(size);
      const std::vector<std::byte> zeros(bytes);
      TROUPE_ASSIGN_OR_RETURN(*input.mutable_data(), options_.channel->Put(zeros, input.spec().name()));
    }
    return inputs;
  }
  void Free(const node::Tensors& inputs) {
    for (const auto& input : inputs)
      if (input.data().has_arena()) options_.channel->Release(input.data()).IgnoreError();
  }

  void Do(node::SaveProfiles& save) {
    options_.save_profiles(std::move(save.profiles), Saved<node::ProfilesSaved>());
  }
  void Do(node::SaveAdopted& save) {
    options_.save_adopted(std::move(save.adopted), Saved<node::AdoptedSaved>());
  }
  // Tells the node how a save ended.
  template <class Event>
  std::function<void(absl::Status)> Saved() {
    return files_.MakeStatus(this, [this](const absl::Status& status) { On(Event{status}); });
  }
  void Do(node::ReadMeters&) {
    options_.metering.read(
        files_.Make<MeterAccess::Pages>(this, [this](absl::StatusOr<MeterAccess::Pages> pages) {
          On(node::MetersRead{std::move(pages), options_.metering.unix_now()});
        }));
  }
  void Do(node::SaveUsage& save) { options_.metering.save(std::move(save.usage), Saved<node::UsageSaved>()); }
  void Do(node::DropMeter& drop) { options_.metering.drop(drop.page); }
  void Do(node::Log& log) {
    if (options_.on_event) options_.on_event(log.kind, log.message);
  }
  void Do(node::WakeMe& wake) { After(this, wake.after, MakeTick(static_cast<std::uint32_t>(wake.timer))); }
  void Do(node::AskSince& ask) { session_.AskSince(this, ask.revision); }

  const NodeOptions options_;
  CacheActor cache_;
  EventQueue<node::Node, node::Event> node_;
  RemoteInputs inputs_;
  static constexpr std::uint64_t kFirstFileTicket = std::uint64_t{1} << 61U;
  Continuations files_{kFirstFileTicket};  // tickets that no other continuations here have
  MemberSession session_;
  PendingCalls calls_;
  ImageOrders<ControllerSelf::base> images_;
  std::vector<ExecutorActor> executors_;  // by runtime
  std::map<std::uint64_t, CreditSinkActor> routers_;
  OpenPromises<proto::SubmitReply, proto::CreditGrant, proto::AdoptModelReply, proto::MemberReport,
               proto::DrainReply, proto::TrialEnded, proto::ExportedTensors, proto::GivenUpStates,
               proto::TakenOverStates, proto::ReplicasInStep, proto::CopiedImage, proto::FetchReply,
               proto::AdminReply>
      open_;
};

}  // namespace

absl::StatusOr<NodeControllerActor> SpawnNodeController(caf::actor_system& system, NodeOptions options,
                                                        CacheActor cache) {
  TROUPE_ASSIGN_OR_RETURN(auto policies, node::FindSchedulerPolicies(options.policies));
  TROUPE_RETURN_IF_ERROR(node::CheckIsolation(options.policies, policies, options.scheduler.isolated));
  return caf::actor_cast<NodeControllerActor>(
      system.spawn<NodeController>(std::move(options), policies, std::move(cache)));
}

}  // namespace troupe::actors

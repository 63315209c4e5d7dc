#include "actors/gateway/router.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/time.hpp"
#include "actors/gateway/kept_inputs.hpp"
#include "actors/gateway/known_nodes.hpp"
#include "actors/gateway/routed_request.hpp"
#include "actors/gateway/unread_replies.hpp"
#include "actors/member/member_session.hpp"
#include "base/alarm.hpp"
#include "base/status.hpp"
#include "base/wire_status.hpp"
#include "cluster/requests/function_arrivals.hpp"
#include "cluster/version_rotation.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

namespace {

using RouterSelf =
    RouterActor::extend<Hears<proto::Tick>, Hears<proto::Job>,
                        caf::reacts_to<proto::PeerUp, caf::strong_actor_ptr>, Hears<proto::PeerLost>>;
using Done = RouterClient::Done;
enum : std::uint32_t { kExpire = 1, kHello = 2 };
constexpr Duration kLeaseRetry = std::chrono::seconds(1);

class Router : public RouterSelf::base, public RouterClient {
 public:
  Router(caf::actor_config& config, RouterOptions options, cluster::RoutingPolicy routing,
         OrderingPolicy ordering, PeerDirectory& directory)
      : RouterSelf::base(config),
        options_(std::move(options)),
        nodes_(directory),
        table_(options_.limits, routing, ordering) {}

  const char* name() const override { return "router"; }

  behavior_type make_behavior() override {
    set_down_handler([this](caf::down_msg& down) {
      calls_.PeerDown(down.source);
      for (const auto& [ticket, node] : unread_.TakeOf(down.source)) ReleaseAt(node, ticket);
    });
    After(this, options_.hello_every, MakeTick(kHello));
    return {
        [this](proto::InferRequest& request) {
          const auto caller = current_sender();  // a promise takes the sender away
          auto promise = make_response_promise<proto::InferReply>();
          Admit(caller, request,
                [promise](proto::InferReply reply) mutable { promise.deliver(std::move(reply)); });
          return promise;
        },
        [this](const proto::CancelInfer& cancel) {
          Finish(table_.Cancel({current_sender() ? current_sender()->id() : 0, cancel.call()}));
        },
        [this](const proto::ReleaseOutputs& release) { Release(release.release()); },
        [this](proto::ExportTensors& wish) { return Export(wish); },
        [this](const proto::CreditGrant& grant) { Granted(grant); },
        [this](const proto::ClusterUpdate& update) { Update(update); },
        [this](const proto::MemberJoined& joined) { Update(joined.state()); },
        [this](const proto::DescribeMember& ask) { return Report(ask); },
        [this](const proto::Tick& tick) { OnTick(tick); },
        [this](const proto::Job& job) { options_.inbox->Run(job, *this); },
        [this](const proto::PeerUp& up, const caf::strong_actor_ptr& peer) { NodeUp(up.address(), peer); },
        [this](const proto::PeerLost& lost) { NodeLost(lost.address(), lost.reason()); },
    };
  }

  void on_exit() override {
    calls_.Clear();
    options_.inbox->Close();
    requests_.clear();
    nodes_.Clear();
    options_.on_answer = nullptr;
  }

  void Infer(proto::InferRequest request, Done done) override { Admit(nullptr, request, std::move(done)); }
  void Cancel(std::uint64_t call) override { Finish(table_.Cancel({0, call})); }

 private:
  // --- requests ---

  // `caller`: the actor that asks, null for threads.
  void Admit(const caf::strong_actor_ptr& caller, proto::InferRequest& message, Done done) {
    if (options_.lease->Over(Now(this)))
      return Refuse(done, message, absl::UnavailableError(options_.lease->Why(options_.gateway, Now(this))),
                    kLeaseRetry);
    const auto function = rotation_.Choose(view_->functions(), message.function());
    if (!function.ok()) {
      // A router that has joined has a view. Before, it cannot say that something does not exist.
      const bool joined = !view_->members().empty();
      return Refuse(done, message,
                    joined
                        ? function.status()
                        : absl::UnavailableError("this gateway has not heard from the cluster manager yet"),
                    {});
    }
    const auto& record = **function;
    if (const auto status = MayServe(record, message, *options_.servable); !status.ok())
      return Refuse(done, message, status, {});
    cluster::RouterRequest request;
    request.sequence = next_sequence_++;
    request.call = {caller ? caller->id() : 0, message.call()};
    request.function = record.key().name();
    request.version = record.key().version();
    request.model = record.model_digest();
    request.priority = message.priority();
    request.deadline = Duration(record.slo().deadline_ns());
    request.percentile = record.slo().percentile();
    request.timeout = Duration(message.timeout_ns());
    request.bytes = InlineBytes(message);
    request.holder = HolderOf(message);
    if (!record.state().empty()) message.clear_keep();  // it is not run again when they are lost
    request.profiled = view_->RunOf(record, cluster::BatchOf(record, message.inputs()));
    const auto now = Now(this);
    arrivals_.Arrived(record);
    if (const auto admission = table_.Admit(request, now); !admission.status.ok())
      return Refuse(done, message, admission.status, admission.retry_after);
    *message.mutable_function() = record.key();
    auto& routed = requests_[request.sequence] = RoutedFor(record, std::move(message), std::move(done), now);
    routed.caller = caf::actor_cast<caf::actor_addr>(caller);
    Pump();
  }

  void Refuse(const Done& done, const proto::InferRequest& request, const absl::Status& status,
              Duration retry_after) {
    proto::InferReply reply;
    SetStatus(status, reply);
    reply.set_retry_after_ns(retry_after.count());
    *reply.mutable_function() = request.function();
    if (options_.on_answer) options_.on_answer({.reply = reply, .id = request.client_id()}, Now(this));
    done(std::move(reply));
  }

  // A request may end while it is sent, which asks for one more round and not for a round within this one.
  void Pump() {
    pump_.again = true;
    if (std::exchange(pump_.runs, true)) return;
    while (std::exchange(pump_.again, false))
      for (const auto& send : table_.Decide(Now(this))) Submit(send);
    pump_.runs = false;
    if (const auto due = table_.NextDue(); pump_.alarm.Set(due))
      After(this, due - Now(this), MakeTick(kExpire));
  }

  void Submit(const cluster::Send& send) {
    auto& held = requests_.at(send.sequence);
    held.ticket = send.ticket;
    auto submit = std::make_shared<proto::SubmitRequest>(SubmitFor(held, send));
    submit->mutable_id()->set_router(options_.id);
    BringInputs(
        submit, send.node,
        [this, timeout = send.timeout_in](const std::string& holder, proto::ExportTensors wish,
                                          ExportDone done) {
          Call<proto::ExportedTensors>(this, calls_, nodes_.ControllerOf(holder), timeout, std::move(wish),
                                       done);
        },
        [this, send, submit](const absl::Status& lost, const std::string& holder) {
          SubmitTo(send, *submit, lost, holder);
        });
  }

  // `lost`: why the inputs that `holder` kept cannot come. Unless it has ended meanwhile, or waits to be sent elsewhere.
  void SubmitTo(const cluster::Send& send, const proto::SubmitRequest& submit, const absl::Status& lost,
                const std::string& holder) {
    const auto it = requests_.find(send.sequence);
    if (it == requests_.end() || it->second.ticket != send.ticket)
      return Finish(table_.NeverSent(send.ticket, Now(this)));
    proto::SubmitReply failed;
    if (!lost.ok()) *failed.mutable_served() = LostInputs(it->second.message, holder, lost);
    if (!lost.ok()) return Replied(send, std::move(failed));
    Call<proto::SubmitReply>(
        this, calls_, nodes_.ControllerOf(send.node), send.timeout_in + options_.call_slack, submit,
        [this, send](absl::StatusOr<proto::SubmitReply> reply) { Replied(send, std::move(reply)); });
  }

  void Replied(const cluster::Send& send, absl::StatusOr<proto::SubmitReply> reply) {
    const auto now = Now(this);
    if (!reply.ok()) {
      ReleaseAt(send.node, send.ticket);  // the node may have answered all the same
      Finish(table_.CallFailed(send.ticket, std::string(reply.status().message()), now));
      return EndIfRemoved(send.sequence);
    }
    if (reply->has_bounced()) return Bounced(send, reply->bounced());
    auto& served = *reply->mutable_served();
    const absl::Status status = StatusIn(served);
    const bool unread = served.release() != 0;
    const Duration run(served.hit() ? served.times().compute_ns() - served.times().others_ns() : 0);
    const auto it = requests_.find(send.sequence);
    if (it != requests_.end() && it->second.ticket == send.ticket) {
      served.mutable_times()->set_router_queue_ns(send.queued.count());
      NameLost(it->second.message, send.node, served);
      it->second.reply = std::move(served);
    }
    Finish(table_.Served(send.ticket, status, now, run));
    // The request was answered before: the outputs that came too late are released.
    if (unread && !unread_.Has(send.ticket)) ReleaseAt(send.node, send.ticket);
  }

  void Bounced(const cluster::Send& send, const proto::Bounced& bounced) {
    Finish(table_.Bounced(send.ticket, bounced.reason(), bounced.message(), Now(this), bounced.attempts()));
    EndIfRemoved(send.sequence);
  }

  // The function may have been removed while its request was at a node: then the request waits for nothing now.
  void EndIfRemoved(std::uint64_t sequence) {
    const auto it = requests_.find(sequence);
    if (it == requests_.end()) return;
    if (const auto key = it->second.message.function(); !view_->functions().FindServed(key).ok())
      FunctionGone(key);
  }

  void Finish(const std::vector<cluster::RequestFinished>& all) {
    for (const auto& finished : all) FinishOne(finished);
    Pump();
  }

  void FinishOne(const cluster::RequestFinished& finished) {
    const auto it = requests_.find(finished.sequence);
    if (it == requests_.end()) return;
    auto held = std::move(it->second);
    requests_.erase(it);
    auto reply = ReplyTo(finished, held);
    using End = cluster::RequestEnd;
    const bool unwanted = finished.end == End::kExpired || finished.end == End::kCancelled;
    if (unwanted && !finished.node.empty()) CancelAt(finished.node, held.ticket);
    if (reply.release() != 0) {
      reply.set_release(held.ticket);
      if (unread_.Add(held.ticket, finished.node, held.caller)) monitor(held.caller);
    }
    const auto now = Now(this);
    const auto ended = EndedFor(held, reply, now, table_.alpha());
    if (held.is_scaled) arrivals_.Ended(ended);
    if (options_.on_answer) options_.on_answer(ended, now);
    held.done(std::move(reply));
  }

  void CancelAt(const std::string& node, std::uint64_t ticket) {
    proto::CancelSubmit cancel;
    cancel.mutable_id()->set_router(options_.id);
    cancel.mutable_id()->set_sequence(ticket);
    if (const auto controller = nodes_.ControllerOf(node)) send(controller, std::move(cancel));
  }

  void Release(std::uint64_t ticket) {
    if (const auto node = unread_.Take(ticket)) ReleaseAt(*node, ticket);
  }

  void ReleaseAt(const std::string& node, std::uint64_t ticket) {
    unread_.Released(node, ticket);
    proto::ReleaseRequest release;
    release.mutable_id()->set_router(options_.id);
    release.mutable_id()->set_sequence(ticket);
    if (const auto controller = nodes_.ControllerOf(node)) send(controller, std::move(release));
  }

  caf::typed_response_promise<proto::ExportedTensors> Export(proto::ExportTensors& wish) {
    auto promise = make_response_promise<proto::ExportedTensors>();
    const auto holder = wish.tensors().empty() ? std::string() : wish.tensors(0).node();
    Call<proto::ExportedTensors>(
        this, calls_, nodes_.ControllerOf(holder), options_.limits.default_timeout, std::move(wish),
        [promise, holder](absl::StatusOr<proto::ExportedTensors> reply) mutable {
          promise.deliver(reply.ok() ? *std::move(reply) : HolderAway(holder, reply.status()));
        });
    return promise;
  }

  // --- nodes and functions ---

  void Update(const proto::ClusterUpdate& update) {
    const auto before = view_->revision();
    const auto change = options_.view->Apply(update);
    view_ = options_.view->Get();
    if (!change.applied) return session_.AskSince(this, before);
    for (const auto& key : change.removed) FunctionGone(key);
    if (change.members_changed || before == 0) WatchNodes();
    Pump();
  }

  void FunctionGone(const proto::FunctionKey& key) {
    const auto served = view_->functions().FindServed(key);
    const auto status = served.ok()
                            ? absl::NotFoundError(absl::StrCat("function '", key.name(), "' was removed"))
                            : served.status();
    Finish(table_.FunctionGone(key.name(), key.version(), status));
  }

  void WatchNodes() {
    table_.SetKinds(view_->KindsOfNodes());
    const auto gone = nodes_.Update(*view_, system().message_types<NodeControllerActor>(),
                                    caf::actor_cast<PeerWatcherActor>(this));
    for (const auto& name : gone) LoseNode(name, "the manager says that it is gone");
  }

  void NodeUp(const std::string& address, const caf::strong_actor_ptr& peer) {
    auto* node = nodes_.At(address);
    if (node == nullptr) return;
    node->controller = caf::actor_cast<NodeControllerActor>(peer);
    monitor(node->controller);
    Hello(*node);
  }

  void NodeLost(const std::string& address, const std::string& reason) {
    auto* node = nodes_.At(address);
    if (node == nullptr) return;
    node->controller = nullptr;
    LoseNode(std::string(node->name), reason);
  }

  void Hello(const KnownNode& node) {
    auto hello = HelloOf(table_, node.name);
    hello.set_router(options_.id);
    const auto released = unread_.ReleasedAt(node.name);
    hello.mutable_released()->Assign(released.tickets.begin(), released.tickets.end());
    request(node.controller, options_.hello_timeout, std::move(hello), caf::actor_cast<CreditSinkActor>(this))
        .then(
            [this, name = node.name, last = released.last_release](const proto::CreditGrant& grant) {
              unread_.Heard(name, last);
              Granted(grant);
            },
            [](const caf::error&) { /* the next hello asks again */ });
  }

  void Granted(const proto::CreditGrant& grant) {
    // A node that the manager counts as dead may well go on granting, and nothing can be sent there.
    if (!nodes_.ControllerOf(grant.node())) return;
    const auto models = ModelsTouchedBy(table_.credits(), grant);
    table_.Apply(grant);
    Publish(models);
    Pump();
  }

  void LoseNode(const std::string& name, const std::string& reason) {
    const auto models = ModelsOf(table_.credits(), name);
    Finish(table_.NodeLost(name, reason));
    // Also of nodes that were lost before, and have answered since.
    unread_.ForgetIf([&](const std::string& node) { return node == name || !nodes_.ControllerOf(node); });
    for (const auto& key : RemovedOf(requests_, *view_)) FunctionGone(key);
    Publish(models);
  }

  void Publish(const std::vector<std::string>& models) {
    options_.servable->Publish(table_.credits(), models);
    options_.view->SetNodes(table_.credits().CountTaking());
  }

  proto::MemberReport Report(const proto::DescribeMember& ask) {
    if (ask.joining()) session_.AskedBy(current_sender());
    return ReportOf(table_, arrivals_, ask.joining());
  }

  void OnTick(const proto::Tick& tick) {
    if (tick.what() == kHello) {
      // Tells every node how much waits here; a node that lost us (restart, partition) learns of us again.
      for (const auto& [address, node] : nodes_.all())
        if (node.controller) Hello(node);
      return After(this, options_.hello_every, tick);
    }
    pump_.alarm.WentOff(Now(this));
    Finish(table_.Expire(Now(this)));
  }

  RouterOptions options_;
  KnownNodes nodes_;
  cluster::RequestTable table_;
  ViewSnapshot view_ = options_.view->Get();
  cluster::VersionRotation rotation_;
  cluster::FunctionArrivals arrivals_;
  MemberSession session_;
  PendingCalls calls_;
  std::map<std::uint64_t, RoutedRequest> requests_;
  UnreadReplies unread_;
  std::uint64_t next_sequence_ = 1;
  struct {
    Alarm alarm{};  // for what falls due in the table
    bool runs = false;
    bool again = false;
  } pump_;
};

}  // namespace

absl::StatusOr<RouterActor> SpawnRouter(caf::actor_system& system, RouterOptions options,
                                        PeerDirectory& directory) {
  TROUPE_ASSIGN_OR_RETURN(auto routing, cluster::FindRoutingPolicy(options.policies.routing));
  TROUPE_ASSIGN_OR_RETURN(auto ordering, FindOrderingPolicy(options.policies.ordering));
  return caf::actor_cast<RouterActor>(
      system.spawn<Router>(std::move(options), routing, ordering, std::ref(directory)));
}

}  // namespace troupe::actors

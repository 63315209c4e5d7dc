// The node controller: requests.
#include "actors/node/node_controller.hpp"

#include "actors/core/fault_hook.hpp"
#include "actors/node/node_controller_actor.hpp"
#include "base/check.hpp"
#include "base/status.hpp"

namespace troupe::actors {

namespace {

SubmitPromise Bounce(SubmitPromise promise, proto::BounceReason reason, const std::string& message) {
  proto::SubmitReply reply;
  reply.mutable_bounced()->set_reason(reason);
  reply.mutable_bounced()->set_message(message);
  promise.deliver(std::move(reply));
  return promise;
}

node::NodeRequest RequestFor(const proto::SubmitRequest& message, const std::string& copy, Time now) {
  const auto after = [now](std::int64_t ns) {
    return Duration(ns) >= Time::max() - now ? Time::max() : now + Duration(ns);
  };
  return {.id = IdOf(message.id()),
          .function = message.function().name(),
          .model = copy,
          .priority = message.priority(),
          // It may have passed: then the request is late, and nearer to its end than others.
          .deadline = message.deadline_in_ns() == 0 ? Time::max() : after(message.deadline_in_ns()),
          .expiry = message.timeout_in_ns() <= 0 ? Time::max() : after(message.timeout_in_ns()),
          .percentile = message.slo_percentile()};
}

}  // namespace

NodeController::NodeController(caf::actor_config& config, NodeOptions options,
                               node::SchedulerPolicies policies, CacheActor cache)
    : ControllerSelf::base(config),
      options_(std::move(options)),
      cache_(std::move(cache)),
      scheduler_(options_.scheduler, policies, options_.costs, options_.topology),
      copies_(options_.copies),
      inputs_(options_.channel, options_.remote_inputs),
      store_(options_.states) {
  if (options_.profiles.format_version() == 0) return;  // nothing was learned yet
  const auto imported = node::ImportProfiles(options_.profiles, scheduler_);
  if (!imported.ok() && options_.on_event)
    options_.on_event("profiles-refused", std::string(imported.message()));
  saved_costs_ = scheduler_.costs().revision();
}

NodeController::behavior_type NodeController::make_behavior() {
  set_down_handler([this](caf::down_msg& down) { Down(down); });
  StartExecutors();
  if (options_.save_profiles) After(this, options_.save_profiles_every, MakeTick(kSaveProfiles));
  if (options_.remembered.functions_size() > 0) After(this, options_.remember_after, MakeTick(kRemember));
  return {
      [this](proto::SubmitRequest& request) { return Submit(request); },
      [this](const proto::CancelSubmit& cancel) { Cancel(IdOf(cancel.id())); },
      [this](const proto::ReleaseRequest& release) { Release(IdOf(release.id())); },
      [this](const proto::RouterHello& hello, const CreditSinkActor& router) { return Hello(hello, router); },
      [this](proto::AdoptModel& adopt) { return Adopt(adopt); },
      [this](const proto::DisownModel& disown) { Disown(disown.model_digest()); },
      [this](const proto::DrainNode& drain) { return Drain(drain.drain()); },
      [this](const proto::DescribeNode&) { return Describe(); },
      [this](const proto::KillGpu& kill) { Kill(kill.gpu()); },
      [this](const proto::InjectFault& fault) { return FaultAnswer(Inject(fault)); },
      [this](const proto::ClusterUpdate& update) {
        Learn(update);
        ArmSaveAdopted();
      },
      [this](const proto::MemberJoined& joined) { Joined(joined); },
      [this](const proto::DescribeMember& ask) { return Report(ask); },
      [this](const proto::ExecutorReport& report) { Executor(report); },
      [this](const proto::Tick& tick) { OnTick(tick); },
      [this](const proto::Continue& message) {
        inputs_.Resume(message);
        store_.Resume(message);
      },
  };
}

void NodeController::on_exit() {
  calls_.Clear();
  SaveProfiles();
  if (save_adopted_armed_) SaveAdopted();
  for (auto& gpu : gpus_) send_exit(gpu.executor, caf::exit_reason::user_shutdown);
  gpus_.clear();
  requests_.clear();
  inputs_.Clear();
  store_.Clear();
  models_.Clear();
  routers_.Clear();
  cache_ = nullptr;
}

SubmitPromise NodeController::Submit(proto::SubmitRequest& message) {
  auto promise = make_response_promise<proto::SubmitReply>();
  const auto id = IdOf(message.id());
  if (message.node_epoch() != epoch_)
    return Bounce(promise, proto::BOUNCE_STALE_EPOCH, "the node has a new epoch");
  const auto* state = declared_.Find(message.function());
  const auto now = Now(this);
  if (options_.lease->Over(now) || (state != nullptr && options_.lease->ExclusiveOver(now)))
    return Bounce(promise, proto::BOUNCE_LEASE_OVER, options_.lease->Why(options_.name, now));
  if (requests_.contains(id)) {
    return Bounce(promise, proto::BOUNCE_UNSPECIFIED, "a request with this id is under way");
  }
  const auto copy = CopyFor(message);
  if (!copy.ok()) return Bounce(promise, proto::BOUNCE_NOT_ADOPTED, std::string(copy.status().message()));
  if (!routers_.ledger().Take(id.router)) return Bounce(promise, proto::BOUNCE_NO_CREDIT, "no credit left");
  demand_.Asked(message.model_digest(), now);
  auto request = RequestFor(message, *copy, now);
  if (state != nullptr) request.state = state->key;
  auto& held = requests_[id];
  held.message = std::move(message);
  held.promise = promise;
  held.expiry = request.expiry;
  if (state != nullptr && !state->failed.ok()) {
    Finish({.id = id, .kind = node::FinishKind::kFailed, .status = state->failed});
    return promise;
  }
  // What the scheduler would refuse is not worth a transfer.
  const bool welcome = scheduler_.Knows(request.model) && !scheduler_.draining();
  if (welcome && inputs_.Needed(held.message.inputs())) {
    BringInputs(request);
  } else {
    Schedule(request);
  }
  return promise;
}

void NodeController::BringInputs(const node::NodeRequest& request) {
  const auto inputs = requests_.at(request.id).message.inputs();
  inputs_.Bring(
      this, request.id, inputs, request.expiry, [this, request](absl::StatusOr<RemoteInputs::Tensors> here) {
        if (here.ok()) {
          *requests_.at(request.id).message.mutable_inputs() = *std::move(here);
          return Schedule(request);
        }
        const bool late = Now(this) >= request.expiry;
        Finish({.id = request.id,
                .kind = late ? node::FinishKind::kExpired : node::FinishKind::kBounced,
                .status = late ? absl::DeadlineExceededError(here.status().message()) : here.status(),
                .bounce = proto::BOUNCE_NO_INPUTS});
      });
}

void NodeController::Schedule(const node::NodeRequest& request) {
  if (!request.trial) StopTrial();
  const bool known = scheduler_.Knows(request.model);
  requests_.at(request.id).from_disk = known && !copies_.Usable(request.model);
  auto submitted = scheduler_.Submit(request, Now(this));
  if (!submitted.accepted) Finish(submitted.finished);
  for (const auto& [gpu, model] : submitted.evictions) OrderEviction(gpu, model);
  Pump();
}

void NodeController::Pump() {
  for (const auto& dispatch : scheduler_.Decide(Now(this))) CarryOut(dispatch);
  for (const auto& dispatch : scheduler_.TakeAhead()) OrderAhead(dispatch);
  for (const auto& [gpu, model] : scheduler_.TakeDepartures()) OrderEviction(gpu, model);
  for (const auto& assignment : scheduler_.TakeAssignments()) Reassign(assignment);
  ArmGiveBack();
  for (const auto& model : scheduler_.WaitingForRegion()) copies_.Need(model);
  MoveCopies();
  const auto due = scheduler_.NextDue();
  if (due < armed_) {
    armed_ = due;
    After(this, due - Now(this), MakeTick(kExpire));
  }
  Refill();
  Try();
}

void NodeController::Handle(const node::Effects& effects) {
  for (const auto& finished : effects.finished) Finish(finished);
  for (const auto& flight : effects.cancel) CancelAtWorker(flight.gpu, flight.request);
  for (const auto& eviction : effects.evictions) {
    swaps_.Evicted("forgotten");
    OrderEviction(eviction.gpu, eviction.model);
  }
  Pump();
  dirty_ = true;
  ArmGrants();
}

NodeController::HeldRequest* NodeController::Current(const node::RequestId& id, std::uint64_t serial) {
  const auto it = requests_.find(id);
  return it == requests_.end() || it->second.serial != serial ? nullptr : &it->second;
}

void NodeController::Finish(const node::Finished& finished) {
  const auto it = requests_.find(finished.id);
  TROUPE_CHECK(it != requests_.end(), "a request ended that this node does not hold");
  if (it->second.trial) {
    const auto trial = std::move(requests_.extract(it).mapped());
    return EndTrial(finished, trial);
  }
  auto& held = it->second;
  auto reply = ReplyFor(finished, held.message, held.swap, held.run, options_.name);
  if (reply.has_served() && finished.gpu != node::kNoGpu)
    reply.mutable_served()->set_gpu(DeviceOf(finished.gpu));  // what people call a GPU
  if (finished.gpu != node::kNoGpu) ReleaseSlices(finished.gpu, UnsentSlices(held.run, reply.served()));
  if (auto slices = SentSlices(reply.served()); slices.slices_size() > 0) {
    reply.mutable_served()->set_release(1);
    unread_.Add(finished.id, {finished.gpu, std::move(slices)});
    scheduler_.Unread(finished.gpu, 1);
  }
  // The run went well and its state is kept, whatever becomes of its outputs.
  const auto* function = FunctionOf(held.message);
  if (finished.kind == node::FinishKind::kServed && function != nullptr && !function->state().empty())
    reply.mutable_served()->set_state_advanced(true);
  inputs_.Forget(finished.id);
  routers_.ledger().Return(finished.id.router);
  if (finished.kind == node::FinishKind::kFailed && finished.attempts >= options_.scheduler.max_attempts)
    Note("request-given-up", std::string(finished.status.message()));
  auto promise = held.promise;
  requests_.erase(it);
  promise.deliver(std::move(reply));
}

void NodeController::Cancel(const node::RequestId& id) {
  if (inputs_.Pending(id))
    return Finish(
        {.id = id, .kind = node::FinishKind::kCancelled, .status = absl::CancelledError("cancelled")});
  const auto cancelled = scheduler_.Cancel(id);
  if (cancelled.verdict == node::CancelVerdict::kCancelled) Finish(cancelled.finished);
  if (cancelled.verdict == node::CancelVerdict::kInFlight) CancelAtWorker(cancelled.gpu, id);
  Pump();
}

void NodeController::CancelAtWorker(node::GpuIndex gpu, const node::RequestId& id) {
  const auto it = requests_.find(id);
  if (it == requests_.end() || it->second.serial == 0) return;
  if (it->second.run_sequence == 0) {
    it->second.cancelled = true;
    return;
  }
  proto::WorkerOrder order;
  order.mutable_cancel()->set_target(it->second.run_sequence);
  Order(gpu, std::move(order), [](const proto::WorkerOutcome&) {});
}

void NodeController::Release(const node::RequestId& id) {
  const auto unread = unread_.Take(id);
  if (!unread) return;
  ReleaseSlices(unread->gpu, unread->slices);
  scheduler_.Unread(unread->gpu, -1);
  if (scheduler_.waiting() > 0) Pump();  // its worker may be free to serve somebody else
}

void NodeController::ReleaseSlices(node::GpuIndex gpu, const proto::ReleaseOrder& slices) {
  if (slices.slices_size() == 0 || !Up(gpu)) return;
  proto::WorkerOrder order;
  *order.mutable_release() = slices;
  Order(gpu, std::move(order), [](const proto::WorkerOutcome&) {});
}

void NodeController::OnTick(const proto::Tick& tick) {
  if (tick.what() == kGrant) {
    grants_armed_ = false;
    if (dirty_) GrantAll();
    return;
  }
  if (tick.what() == kCopies) {
    copies_armed_ = Time::max();
    return MoveCopies();
  }
  if (tick.what() == kGiveBack) {
    give_back_armed_ = Time::max();
    scheduler_.GiveBack(Now(this), options_.isolation.idle);
    return Pump();
  }
  if (tick.what() == kStrangers) return EvictStrangers();
  if (tick.what() == kRemember) return AdoptAgain();
  if (tick.what() == kSaveAdopted) return SaveAdopted();
  if (tick.what() == kBroadcasts) return SendBroadcasts();
  if (tick.what() == kSaveProfiles) {
    SaveProfiles();
    return After(this, options_.save_profiles_every, tick);
  }
  armed_ = Time::max();
  Handle(scheduler_.Expire(Now(this)));
}

absl::StatusOr<NodeControllerActor> SpawnNodeController(caf::actor_system& system, NodeOptions options,
                                                        CacheActor cache) {
  TROUPE_ASSIGN_OR_RETURN(auto policies, node::FindSchedulerPolicies(options.policies));
  return caf::actor_cast<NodeControllerActor>(
      system.spawn<NodeController>(std::move(options), policies, std::move(cache)));
}

}  // namespace troupe::actors

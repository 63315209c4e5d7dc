#include "actors/node/node_controller.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/time.hpp"
#include "actors/node/orders.hpp"
#include "actors/node/router_links.hpp"
#include "base/check.hpp"
#include "base/status.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

namespace {

using ControllerSelf = NodeControllerActor::extend<Hears<proto::Tick>>;
using SubmitPromise = caf::typed_response_promise<proto::SubmitReply>;
using AdoptPromise = caf::typed_response_promise<proto::AdoptModelReply>;
enum : std::uint32_t { kExpire = 1, kGrant = 2 };

// A model with a host copy at this node, or on its way to one.
struct HeldModel {
  proto::FunctionRecord function;
  proto::HostCopy copy;
  bool adopted = false;
  std::vector<AdoptPromise> waiting;
};

// A request from its arrival until its outputs have been read.
struct HeldRequest {
  proto::SubmitRequest message;
  SubmitPromise promise;
  Time expiry{};
  // Of its current dispatch.
  std::uint64_t serial = 0;
  node::GpuIndex gpu = node::kNoGpu;
  std::uint64_t run_sequence = 0;
  proto::WorkerOutcome swap;
  proto::WorkerOutcome run;
};

struct HeldGpu {
  ExecutorActor executor;
  proto::ExecutorReport last;
};

class NodeController : public ControllerSelf::base {
 public:
  NodeController(caf::actor_config& config, NodeOptions options, node::SchedulerPolicies policies,
                 CacheActor cache)
      : ControllerSelf::base(config),
        options_(std::move(options)),
        cache_(std::move(cache)),
        scheduler_(options_.scheduler, policies) {}

  const char* name() const override { return "node_controller"; }

  behavior_type make_behavior() override {
    set_down_handler([this](caf::down_msg& down) { Down(down); });
    StartExecutors();
    return {
        [this](proto::SubmitRequest& request) { return Submit(request); },
        [this](const proto::CancelSubmit& cancel) { Cancel(IdOf(cancel.id())); },
        [this](const proto::ReleaseRequest& release) { Release(IdOf(release.id())); },
        [this](const proto::RouterHello& hello, const CreditSinkActor& router) {
          return Hello(hello, router);
        },
        [this](proto::AdoptModel& adopt) { return Adopt(adopt); },
        [this](const proto::DisownModel& disown) { Disown(disown.model_digest()); },
        [this](const proto::DrainNode& drain) { return Drain(drain.drain()); },
        [this](const proto::DescribeNode&) { return Describe(); },
        [this](const proto::KillGpu& kill) { Kill(kill.gpu()); },
        [](const proto::ClusterUpdate&) {},
        [this](const proto::MemberJoined& joined) { Joined(joined.epoch()); },
        [this](const proto::DescribeMember& ask) { return Report(ask.joining()); },
        [this](const proto::ExecutorReport& report) { Executor(report); },
        [this](const proto::Tick& tick) { OnTick(tick); },
    };
  }

  void on_exit() override {
    for (auto& gpu : gpus_) send_exit(gpu.executor, caf::exit_reason::user_shutdown);
    gpus_.clear();
    requests_.clear();
    models_.clear();
    routers_.Clear();
    cache_ = nullptr;
  }

 private:
  void StartExecutors() {
    for (std::uint32_t i = 0; i < options_.gpus.size(); ++i) {
      scheduler_.AddGpu(i, options_.gpus[i].memory);
      HeldGpu gpu;
      gpu.last.set_gpu(i);
      gpu.executor = SpawnExecutor(system(), i, options_.make_link(i),
                                   caf::actor_cast<ExecutorListener>(this), options_.executor);
      gpus_.push_back(std::move(gpu));
    }
    UpdateCapacity();
  }

  // --- requests ---

  SubmitPromise Submit(proto::SubmitRequest& message) {
    auto promise = make_response_promise<proto::SubmitReply>();
    const auto id = IdOf(message.id());
    if (message.node_epoch() != epoch_)
      return Bounce(promise, proto::BOUNCE_STALE_EPOCH, "the node has a new epoch");
    if (requests_.contains(id)) {
      return Bounce(promise, proto::BOUNCE_UNSPECIFIED, "a request with this id is under way");
    }
    if (!routers_.ledger().Take(id.router)) return Bounce(promise, proto::BOUNCE_NO_CREDIT, "no credit left");
    const auto now = Now(this);
    node::NodeRequest request{id,
                              message.function().name(),
                              message.model_digest(),
                              message.priority(),
                              now + Duration(message.deadline_in_ns()),
                              now + Duration(message.timeout_in_ns())};
    if (message.deadline_in_ns() <= 0) request.deadline = Time::max();
    if (message.timeout_in_ns() <= 0) request.expiry = Time::max();
    auto& held = requests_[id];
    held.message = std::move(message);
    held.promise = promise;
    held.expiry = request.expiry;
    auto submitted = scheduler_.Submit(request, now);
    if (!submitted.accepted) Finish(submitted.finished);
    Pump();
    return promise;
  }

  static SubmitPromise Bounce(SubmitPromise promise, proto::BounceReason reason, const std::string& message) {
    proto::SubmitReply reply;
    reply.mutable_bounced()->set_reason(reason);
    reply.mutable_bounced()->set_message(message);
    promise.deliver(std::move(reply));
    return promise;
  }

  // Carries out whatever can be decided now, and arms the timer of what expires next.
  void Pump() {
    for (const auto& dispatch : scheduler_.Decide(Now(this))) CarryOut(dispatch);
    const auto due = scheduler_.NextDue();
    if (due < armed_) {
      armed_ = due;
      After(this, due - Now(this), MakeTick(kExpire));
    }
  }

  void CarryOut(const node::Dispatch& dispatch) {
    const auto held = requests_.find(dispatch.request);
    const auto model = models_.find(dispatch.model);
    TROUPE_CHECK(held != requests_.end() && model != models_.end(),
                 "dispatched what this node does not hold");
    auto& request = held->second;
    request.serial = next_serial_++;
    request.gpu = dispatch.gpu;
    request.swap.Clear();
    request.run.Clear();
    for (const auto& victim : dispatch.victims) OrderEviction(dispatch.gpu, victim);
    if (dispatch.source == node::SwapSource::kHost) OrderSwapIn(dispatch, request.serial, model->second.copy);
    const auto remaining = request.expiry == Time::max() ? Duration::max() : request.expiry - Now(this);
    auto order = RunOrderFor(request.message, model->second.copy, remaining);
    request.run_sequence = Order(dispatch.gpu, std::move(order),
                                 [this, dispatch, serial = request.serial](proto::WorkerOutcome outcome) {
                                   Ran(dispatch, serial, std::move(outcome));
                                 });
  }

  void OrderEviction(node::GpuIndex gpu, const std::string& model) {
    const auto copy = models_.find(model);
    const auto& digest = copy != models_.end() ? copy->second.copy.digest() : forgotten_[model];
    const auto life = gpus_[gpu].last.incarnation();
    Order(gpu, EvictOrderFor(digest), [this, gpu, model, life](const proto::WorkerOutcome& outcome) {
      if (gpus_[gpu].last.incarnation() != life || !Up(gpu)) return;
      auto status = StatusOf(outcome);
      if (absl::IsNotFound(status)) status = absl::OkStatus();  // it is gone: what was asked for
      Handle(scheduler_.Apply(node::EvictDone{gpu, model, status}, Now(this)));
    });
  }

  void OrderSwapIn(const node::Dispatch& dispatch, std::uint64_t serial, const proto::HostCopy& copy) {
    Order(dispatch.gpu, SwapInOrderFor(copy), [this, dispatch, serial](const proto::WorkerOutcome& outcome) {
      const auto held = Current(dispatch.request, serial);
      if (held == nullptr) return;
      held->swap = outcome;
      Handle(scheduler_.Apply(
          node::SwapInDone{dispatch.gpu, dispatch.model, StatusOf(outcome), Bytes(outcome.bytes()),
                           Duration(outcome.end_ns() - outcome.begin_ns())},
          Now(this)));
    });
  }

  void Ran(const node::Dispatch& dispatch, std::uint64_t serial, proto::WorkerOutcome outcome) {
    const auto held = Current(dispatch.request, serial);
    if (held == nullptr) return ReleaseSlices(dispatch.gpu, UnsentSlices(outcome, proto::InferReply()));
    held->run = std::move(outcome);
    held->serial = 0;
    Handle(scheduler_.Apply(RunDoneFor(dispatch, held->swap, held->run), Now(this)));
  }

  // The request, if `serial` is still its dispatch: outcomes of a worker that was lost come too late.
  HeldRequest* Current(const node::RequestId& id, std::uint64_t serial) {
    const auto it = requests_.find(id);
    return it == requests_.end() || it->second.serial != serial ? nullptr : &it->second;
  }

  template <class Then>
  std::uint64_t Order(node::GpuIndex gpu, proto::WorkerOrder order, Then then) {
    const auto sequence = next_sequence_++;
    order.set_sequence(sequence);
    // An executor answers every order, also when its worker dies; its own end is the node's.
    request(gpus_[gpu].executor, caf::infinite, std::move(order))
        .then([then](proto::WorkerOutcome& outcome) mutable { then(std::move(outcome)); },
              [then, sequence](const caf::error& error) mutable {
                proto::WorkerOutcome outcome;
                outcome.set_sequence(sequence);
                outcome.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
                outcome.set_message(caf::to_string(error));
                then(std::move(outcome));
              });
    return sequence;
  }

  void Handle(const node::Effects& effects) {
    for (const auto& finished : effects.finished) Finish(finished);
    for (const auto& flight : effects.cancel) CancelAtWorker(flight.gpu, flight.request);
    for (const auto& eviction : effects.evictions) OrderEviction(eviction.gpu, eviction.model);
    Pump();
    dirty_ = true;
    ArmGrants();
  }

  void Finish(const node::Finished& finished) {
    const auto it = requests_.find(finished.id);
    TROUPE_CHECK(it != requests_.end(), "a request ended that this node does not hold");
    auto& held = it->second;
    auto reply = ReplyFor(finished, held.message, held.swap, held.run, options_.name);
    if (finished.gpu != node::kNoGpu) ReleaseSlices(finished.gpu, UnsentSlices(held.run, reply.served()));
    if (auto slices = SentSlices(reply.served()); slices.slices_size() > 0) {
      reply.mutable_served()->set_release(1);
      unread_[finished.id] = {finished.gpu, std::move(slices)};
    }
    routers_.ledger().Return(finished.id.router);
    auto promise = held.promise;
    const auto model = held.message.model_digest();
    requests_.erase(it);
    promise.deliver(std::move(reply));
    LetGo(model);
  }

  void Cancel(const node::RequestId& id) {
    const auto cancelled = scheduler_.Cancel(id);
    if (cancelled.verdict == node::CancelVerdict::kCancelled) Finish(cancelled.finished);
    if (cancelled.verdict == node::CancelVerdict::kInFlight) CancelAtWorker(cancelled.gpu, id);
    Pump();
  }

  void CancelAtWorker(node::GpuIndex gpu, const node::RequestId& id) {
    const auto it = requests_.find(id);
    if (it == requests_.end() || it->second.serial == 0) return;
    proto::WorkerOrder order;
    order.mutable_cancel()->set_target(it->second.run_sequence);
    Order(gpu, std::move(order), [](const proto::WorkerOutcome&) {});
  }

  void Release(const node::RequestId& id) {
    const auto it = unread_.find(id);
    if (it == unread_.end()) return;
    ReleaseSlices(it->second.first, it->second.second);
    unread_.erase(it);
  }

  void ReleaseSlices(node::GpuIndex gpu, const proto::ReleaseOrder& slices) {
    if (slices.slices_size() == 0 || !Up(gpu)) return;
    proto::WorkerOrder order;
    *order.mutable_release() = slices;
    Order(gpu, std::move(order), [](const proto::WorkerOutcome&) {});
  }

  // --- routers ---

  proto::CreditGrant Hello(const proto::RouterHello& hello, const CreditSinkActor& router) {
    if (routers_.Add(hello.router(), router)) monitor(router);
    routers_.ledger().Report(hello.router(), hello.queued());
    proto::CreditGrant mine = Grant();
    for (const auto& grant : routers_.ledger().Regrant(hello.router())) {
      if (grant.router == hello.router()) {
        mine.set_limit(grant.limit);
      } else {
        auto other = Grant();
        other.set_limit(grant.limit);
        send(routers_.Find(grant.router), std::move(other));
      }
    }
    return mine;
  }

  [[nodiscard]] proto::CreditGrant Grant() const {
    proto::CreditGrant grant;
    grant.set_node(options_.name);
    grant.set_node_epoch(epoch_);
    grant.set_draining(scheduler_.draining());
    for (const auto& model : scheduler_.AdoptedModels()) grant.add_adopted(model);
    for (const auto& model : scheduler_.gpus().ResidentModels()) grant.add_resident(model);
    return grant;
  }

  // Everyone learns the limits that changed, and what is adopted and resident now.
  void GrantAll() {
    dirty_ = false;
    static_cast<void>(routers_.ledger().Regrant());
    for (const auto& [id, router] : routers_.all()) {
      auto grant = Grant();
      grant.set_limit(routers_.ledger().limit(id));
      send(router, std::move(grant));
    }
  }

  void ArmGrants() {
    if (grants_armed_) return;
    grants_armed_ = true;
    After(this, options_.grant_every, MakeTick(kGrant));
  }

  void Down(const caf::down_msg& down) {
    const auto router = routers_.Remove(down.source);
    if (router == 0) return;
    Handle(scheduler_.ForgetRouter(router));
    for (auto it = unread_.begin(); it != unread_.end();) {
      if (it->first.router != router) {
        ++it;
        continue;
      }
      ReleaseSlices(it->second.first, it->second.second);
      it = unread_.erase(it);
    }
  }

  // --- models ---

  AdoptPromise Adopt(proto::AdoptModel& adopt) {
    auto promise = make_response_promise<proto::AdoptModelReply>();
    const auto digest = adopt.function().model_digest();
    auto& model = models_[digest];
    if (model.adopted) {
      AnswerAdopt({promise}, digest, absl::OkStatus());
      return promise;
    }
    model.waiting.push_back(promise);
    if (model.waiting.size() > 1) return promise;
    model.function = adopt.function();
    Call<proto::HostModel>(
        this, calls_, cache_, options_.adopt_timeout, std::move(adopt),
        [this, digest](absl::StatusOr<proto::HostModel> host) { Placed(digest, std::move(host)); });
    return promise;
  }

  void Placed(const std::string& digest, absl::StatusOr<proto::HostModel> host) {
    const auto it = models_.find(digest);
    if (it == models_.end()) return;  // disowned meanwhile
    if (host.ok() && host->code() != 0) {
      host = absl::Status(static_cast<absl::StatusCode>(host->code()), host->message());
    }
    if (!host.ok()) return AdoptFailed(digest, host.status());
    it->second.copy = host->copy();
    FindResident(digest, host->copy().digest());
    Handle(scheduler_.DescribeModel(digest, Bytes(host->copy().weights().length()), Bytes(0)));
    bool asked = false;
    for (node::GpuIndex gpu = 0; gpu < gpus_.size(); ++gpu) asked |= Prepare(gpu, digest);
    if (!asked) Adopted(digest);  // no worker is up: it prepares when it comes
  }

  // Workers that outlived the daemon before us may hold the model already.
  void FindResident(const std::string& digest, const std::string& packed) {
    for (node::GpuIndex gpu = 0; gpu < gpus_.size(); ++gpu) {
      auto& residents = *gpus_[gpu].last.mutable_worker()->mutable_resident();
      const auto it = std::find_if(residents.begin(), residents.end(),
                                   [&](const auto& resident) { return resident.digest() == packed; });
      if (!Up(gpu) || it == residents.end()) continue;
      scheduler_.FoundResident(gpu, {digest, Bytes(it->bytes())}, Now(this));
      residents.erase(it);  // true only until the scheduler decides otherwise
    }
  }

  // Makes the plan of the declared shapes, so that the first request finds it ready.
  bool Prepare(node::GpuIndex gpu, const std::string& digest) {
    if (!Up(gpu)) return false;
    const auto& model = models_.at(digest);
    Order(gpu, PrepareOrderFor(model.function, model.copy),
          [this, digest](const proto::WorkerOutcome& outcome) {
            const auto it = models_.find(digest);
            if (it == models_.end()) return;
            if (outcome.code() == 0) {
              Handle(scheduler_.DescribeModel(digest, Bytes(outcome.prepared().weights_bytes()),
                                              Bytes(outcome.prepared().activation_bytes())));
              Adopted(digest);
            } else if (!it->second.adopted) {
              // A worker that died while it prepared is no fault of the model.
              if (absl::IsUnavailable(StatusOf(outcome))) return Adopted(digest);
              AdoptFailed(digest, StatusOf(outcome));
            }
          });
    return true;
  }

  void Adopted(const std::string& digest) {
    auto& model = models_.at(digest);
    model.adopted = true;
    GrantAll();  // before the deployment is answered: the next request finds routers that know
    AnswerAdopt(std::exchange(model.waiting, {}), digest, absl::OkStatus());
    Handle({});
  }

  void AdoptFailed(const std::string& digest, const absl::Status& status) {
    auto waiting = std::move(models_.at(digest).waiting);
    Disown(digest);
    AnswerAdopt(std::move(waiting), digest, status);
  }

  void AnswerAdopt(std::vector<AdoptPromise> waiting, const std::string& digest, const absl::Status& status) {
    proto::AdoptModelReply reply;
    reply.set_code(static_cast<int>(status.code()));
    reply.set_message(std::string(status.message()));
    reply.set_model_digest(digest);
    for (auto& promise : waiting) promise.deliver(reply);
  }

  void Disown(const std::string& digest) {
    const auto it = models_.find(digest);
    if (it == models_.end()) return;
    auto model = std::move(it->second);
    models_.erase(it);
    // Evictions that are still to come need its name at the worker.
    forgotten_[digest] = model.copy.digest();
    if (scheduler_.Knows(digest)) Handle(scheduler_.ForgetModel(digest));
    AnswerAdopt(std::move(model.waiting), digest,
                absl::CancelledError("the model was disowned while it was adopted"));
    leaving_.insert(digest);
    LetGo(digest);
  }

  // The host copy goes once no worker may still be reading it: when nothing that was dispatched uses the
  // model.
  void LetGo(const std::string& digest) {
    if (!leaving_.contains(digest) || models_.contains(digest)) return;
    for (const auto& [id, held] : requests_)
      if (held.message.model_digest() == digest && held.serial != 0) return;
    leaving_.erase(digest);
    proto::DisownModel disown;
    disown.set_model_digest(digest);
    send(cache_, std::move(disown));
  }

  // --- workers ---

  [[nodiscard]] bool Up(node::GpuIndex gpu) const {
    return gpus_[gpu].last.state() == proto::ExecutorReport::READY;
  }

  void Executor(const proto::ExecutorReport& report) {
    if (report.gpu() >= gpus_.size()) return;
    auto& gpu = gpus_[report.gpu()];
    gpu.last = report;
    Tell(report);
    const auto now = Now(this);
    switch (report.state()) {
      case proto::ExecutorReport::READY:
        return WorkerUp(report, now);
      case proto::ExecutorReport::DOWN:
        VoidDispatches(report.gpu());
        return Handle(scheduler_.Apply(node::WorkerLost{report.gpu(), report.reason()}, now));
      case proto::ExecutorReport::UNFIT:
        VoidDispatches(report.gpu());
        Handle(scheduler_.Apply(node::GpuUnfit{report.gpu(), report.reason()}, now));
        return UpdateCapacity();
      default:
        return;
    }
  }

  void Tell(const proto::ExecutorReport& report) {
    if (!options_.on_event) return;
    const auto state = proto::ExecutorReport::State_Name(report.state());
    auto text = absl::StrCat("GPU ", report.gpu(), ", worker ", report.incarnation());
    if (report.down_ns() > 0)
      absl::StrAppend(&text, ", back after ", FormatDuration(Duration(report.down_ns())));
    if (!report.reason().empty()) absl::StrAppend(&text, ": ", report.reason());
    options_.on_event(absl::StrCat("worker-", absl::AsciiStrToLower(state)), text);
  }

  void WorkerUp(const proto::ExecutorReport& report, Time now) {
    node::WorkerReady ready{
        report.gpu(), Bytes(report.worker().memory_bytes()), Bytes(report.worker().free_bytes()), {}};
    for (const auto& resident : report.worker().resident())
      for (const auto& [digest, model] : models_)
        if (model.copy.digest() == resident.digest())
          ready.resident.push_back({digest, Bytes(resident.bytes())});
    Handle(scheduler_.Apply(ready, now));
    for (const auto& [digest, model] : models_)
      if (!model.copy.digest().empty()) Prepare(report.gpu(), digest);
  }

  // Outcomes of the lost worker's orders come right behind the report; the scheduler has planned anew by
  // then.
  void VoidDispatches(node::GpuIndex gpu) {
    for (auto& [id, held] : requests_)
      if (held.gpu == gpu) held.serial = 0;
    std::erase_if(unread_, [gpu](const auto& entry) { return entry.second.first == gpu; });
  }

  void UpdateCapacity() {
    std::uint64_t fit = 0;
    for (const auto& gpu : gpus_) fit += gpu.last.state() != proto::ExecutorReport::UNFIT;
    routers_.ledger().SetCapacity(scheduler_.draining() ? 0 : fit * options_.credits_per_gpu);
    GrantAll();
  }

  void Kill(std::uint32_t gpu) {
    if (gpu >= gpus_.size()) return;
    proto::KillWorker kill;
    kill.set_reason("an operator asked for it");
    send(gpus_[gpu].executor, std::move(kill));
  }

  // --- the rest of the cluster ---

  proto::DrainReply Drain(bool drain) {
    scheduler_.SetDraining(drain);
    UpdateCapacity();
    return {};
  }

  void Joined(std::uint64_t epoch) {
    epoch_ = epoch;
    GrantAll();
  }

  [[nodiscard]] proto::MemberReport Report(bool joining) const {
    proto::MemberReport report;
    for (std::uint32_t i = 0; i < gpus_.size(); ++i) *report.add_gpus() = Record(i);
    *report.mutable_load() = Load();
    if (!joining) return report;
    for (const auto& [digest, model] : models_)
      if (model.adopted) report.add_adopted(digest);
    return report;
  }

  [[nodiscard]] proto::GpuRecord Record(std::uint32_t index) const {
    proto::GpuRecord record;
    record.set_index(index);
    record.set_device(options_.gpus[index].device);
    record.set_memory_bytes(options_.gpus[index].memory.count());
    record.set_state(absl::AsciiStrToLower(proto::ExecutorReport::State_Name(gpus_[index].last.state())));
    return record;
  }

  [[nodiscard]] proto::NodeLoad Load() const {
    const auto& counts = scheduler_.counts();
    proto::NodeLoad load;
    load.set_queued(scheduler_.waiting());
    load.set_running(scheduler_.in_flight());
    load.set_served(counts.served);
    load.set_failed(counts.failed);
    load.set_swaps(counts.swaps);
    load.set_hits(counts.hits);
    load.set_retried(counts.retried);
    return load;
  }

  caf::typed_response_promise<proto::NodeDescription> Describe() {
    auto promise = make_response_promise<proto::NodeDescription>();
    auto gathered = std::make_shared<proto::NodeDescription>();
    gathered->set_node(options_.name);
    *gathered->mutable_load() = Load();
    for (const auto& model : scheduler_.AdoptedModels()) gathered->add_adopted(model);
    auto open = std::make_shared<std::size_t>(gpus_.size());
    if (gpus_.empty()) promise.deliver(*gathered);
    for (std::uint32_t i = 0; i < gpus_.size(); ++i) {
      auto* status = gathered->add_gpus();
      status->set_node(options_.name);
      *status->mutable_gpu() = Record(i);
      status->set_restarts(gpus_[i].last.restarts());
    }
    for (std::uint32_t i = 0; i < gpus_.size(); ++i) {
      proto::WorkerOrder order;
      order.mutable_describe();
      order.set_sequence(next_sequence_++);
      Call<proto::WorkerOutcome>(
          this, calls_, gpus_[i].executor, options_.describe_timeout, std::move(order),
          [this, promise, gathered, open, i](absl::StatusOr<proto::WorkerOutcome> outcome) mutable {
            if (outcome.ok()) AddWorker(*outcome, *gathered->mutable_gpus(static_cast<int>(i)));
            if (--*open == 0) promise.deliver(*gathered);
          });
    }
    return promise;
  }

  void AddWorker(const proto::WorkerOutcome& outcome, proto::GpuStatus& status) {
    *status.mutable_worker() = outcome.description();
    // The worker knows models by their packed digests; people and the registry by the canonical ones.
    for (auto& resident : *status.mutable_worker()->mutable_resident())
      for (const auto& [digest, model] : models_)
        if (model.copy.digest() == resident.digest()) resident.set_digest(digest);
  }

  void OnTick(const proto::Tick& tick) {
    if (tick.what() == kGrant) {
      grants_armed_ = false;
      if (dirty_) GrantAll();
      return;
    }
    armed_ = Time::max();
    Handle(scheduler_.Expire(Now(this)));
  }

  static proto::Tick MakeTick(std::uint32_t what) {
    proto::Tick tick;
    tick.set_what(what);
    return tick;
  }

  const NodeOptions options_;
  CacheActor cache_;
  node::SwapScheduler scheduler_;
  RouterLinks routers_;
  PendingCalls calls_;
  std::vector<HeldGpu> gpus_;
  std::map<node::RequestId, HeldRequest> requests_;
  std::map<node::RequestId, std::pair<node::GpuIndex, proto::ReleaseOrder>> unread_;
  std::map<std::string, HeldModel> models_;
  std::set<std::string> leaving_;                 // disowned, and perhaps still read by a worker
  std::map<std::string, std::string> forgotten_;  // canonical digest -> packed, for evictions under way
  std::uint64_t epoch_ = 0;
  std::uint64_t next_sequence_ = 1;
  std::uint64_t next_serial_ = 1;
  Time armed_ = Time::max();
  bool grants_armed_ = false;
  bool dirty_ = false;
};

}  // namespace

absl::StatusOr<NodeControllerActor> SpawnNodeController(caf::actor_system& system, NodeOptions options,
                                                        CacheActor cache) {
  TROUPE_ASSIGN_OR_RETURN(auto policies, node::FindSchedulerPolicies(options.policies));
  return caf::actor_cast<NodeControllerActor>(
      system.spawn<NodeController>(std::move(options), policies, std::move(cache)));
}

}  // namespace troupe::actors
